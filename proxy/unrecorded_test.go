package proxy_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"tornwire/faults"
	"tornwire/history"
	"tornwire/proxy"
)

// TestUnrecorded runs tests again whose links record no bytes, and so pass over frames
// that no rule takes, as those of the daemon do. Ends and firings are recorded. What
// is not here says nothing without the bytes that were recorded, or sends no frames.
func TestUnrecorded(t *testing.T) {
	bare = true
	t.Cleanup(func() { bare = false })
	for name, test := range map[string]func(*testing.T){
		"TestRendezvous":               TestRendezvous,
		"TestAfterSignal":              TestAfterSignal,
		"TestWatching":                 TestWatching,
		"TestObserve":                  TestObserve,
		"TestGoneWaitsEnd":             TestGoneWaitsEnd,
		"TestGoneDoesNothing":          TestGoneDoesNothing,
		"TestEachDelivery":             TestEachDelivery,
		"TestMisplaced":                TestMisplaced,
		"TestProxyHeader":              TestProxyHeader,
		"TestHeldUntilKnown":           TestHeldUntilKnown,
		"TestHeldFaults":               TestHeldFaults,
		"TestHeldCuts":                 TestHeldCuts,
		"TestHeldAsItGoes":             TestHeldAsItGoes,
		"TestHeldTTL":                  TestHeldTTL,
		"TestNoRule":                   TestNoRule,
		"TestSplit":                    TestSplit,
		"TestSplitOutside":             TestSplitOutside,
		"TestSplitAcrossReads":         TestSplitAcrossReads,
		"TestHold":                     TestHold,
		"TestGateStaysOpen":            TestGateStaysOpen,
		"TestHoldsInARow":              TestHoldsInARow,
		"TestHoldsBehindNothing":       TestHoldsBehindNothing,
		"TestCutFreesTheQueue":         TestCutFreesTheQueue,
		"TestSilentLimit":              TestSilentLimit,
		"TestBackPressure":             TestBackPressure,
		"TestKeep":                     TestKeep,
		"TestKeepHeld":                 TestKeepHeld,
		"TestMutedUntilDisarmed":       TestMutedUntilDisarmed,
		"TestMutedForTTL":              TestMutedForTTL,
		"TestTimesAreOfWhatActed":      TestTimesAreOfWhatActed,
		"TestFrameEnd":                 TestFrameEnd,
		"TestOneSided":                 TestOneSided,
		"TestStalledReset":             TestStalledReset,
		"TestAfter":                    TestAfter,
		"TestAfterTearDown":            TestAfterTearDown,
		"TestClientTriggers":           TestClientTriggers,
		"TestNoNextFrame":              TestNoNextFrame,
		"TestSlowFrames":               TestSlowFrames,
		"TestPairsInARow":              TestPairsInARow,
		"TestPairLost":                 TestPairLost,
		"TestDribbleTimes":             TestDribbleTimes,
		"TestDelayTimes":               TestDelayTimes,
		"TestGreetingGate":             TestGreetingGate,
		"TestPairOver":                 TestPairOver,
		"TestRandom":                   TestRandom,
		"TestReplayBesideOthers":       TestReplayBesideOthers,
		"TestReset":                    TestReset,
		"TestResetAfterFIN":            TestResetAfterFIN,
		"TestResetWhileWriting":        TestResetWhileWriting,
		"TestResetUnderLoad":           TestResetUnderLoad,
		"TestHalfTLS":                  TestHalfTLS,
		"TestTruncation":               TestTruncation,
		"TestSlowReceiver":             TestSlowReceiver,
		"TestUnreadingReceiver":        TestUnreadingReceiver,
		"TestUnreadingAtTheEnd":        TestUnreadingAtTheEnd,
		"TestPassThrough":              TestPassThrough,
		"TestStagesCarry":              TestStagesCarry,
		"TestStagesOneWay":             TestStagesOneWay,
		"TestStagesEnd":                TestStagesEnd,
		"TestStagesAndCuts":            TestStagesAndCuts,
		"TestHalfClose":                TestHalfClose,
		"TestBulk":                     TestBulk,
		"TestNoGrammar":                TestNoGrammar,
		"TestTeardown":                 TestTeardown,
		"TestTriggers":                 TestTriggers,
		"TestSessionNumbers":           TestSessionNumbers,
		"TestFirstRuleActs":            TestFirstRuleActs,
		"TestTruncate":                 TestTruncate,
		"TestNoReplyAfterTheLastBytes": TestNoReplyAfterTheLastBytes,
		"TestCutWhileWriting":          TestCutWhileWriting,
		"TestOneCutASession":           TestOneCutASession,
		"TestCutsMeet":                 TestCutsMeet,
		"TestHeldHalfClosed":           TestHeldHalfClosed,
		"TestClose":                    TestClose,
		"TestUnsureBeforeItsServer":    TestUnsureBeforeItsServer,
		"TestWaitingClientGoesOn":      TestWaitingClientGoesOn,
		"TestWaitingClientResets":      TestWaitingClientResets,
		"TestWaitingClientLeaves":      TestWaitingClientLeaves,
		"TestWaitingClientIsTorn":      TestWaitingClientIsTorn,
	} {
		t.Run(name, test)
	}
}

// TestPassedOver: frames of one read that no rule takes count each, and so does the
// next that one takes, by all its numbers, wherever the reads end.
func TestPassedOver(t *testing.T) {
	before := auth + strings.Repeat(acquire, 3) + "\n" + strings.Repeat(release+acquire, 2)
	for _, size := range []int{len(before), len(acquire), 7, 1} {
		for _, trigger := range []faults.Trigger{{Nth: 12}, {SessionNth: 7}, {Client: "c1", ClientNth: 12}} {
			for _, tr := range []transport{inMemory(0), unrecorded(inMemory(0))} {
				synctest.Test(t, func(t *testing.T) {
					b := newBed(t, tr, proxy.Config{Grammar: grammar, ReadSize: size})
					var clients, servers [2]*peer
					for i := range clients {
						clients[i], servers[i] = b.connect()
						clients[i].send(before)
					}
					synctest.Wait()
					trigger.Dir, trigger.Op = c2s, "A"
					must(t, b.px.Arm(faults.Rule{ID: "the rule", Fault: fault(t, "corrupt"), At: 11, Trigger: trigger}))
					clients[1].send(strings.Repeat(acquire, 4))
					synctest.Wait()
					altered := acquire[:11] + string(acquire[11]^1) + acquire[12:]
					servers[0].wantGot("server", before, "")
					servers[1].wantGot("server", before+acquire+altered+acquire+acquire, "")
					if seq := b.events(history.Fired)[0].Frame.Seq; seq != 10 {
						t.Errorf("it acted on frame %d of the session", seq)
					}
					wantCounts(t, b.px, "the rule", 1, len(acquire))
					b.stop()
				})
			}
		}
	}
}
