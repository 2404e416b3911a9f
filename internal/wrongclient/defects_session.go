package wrongclient

// Defects and oddities about which sessions a client keeps.
const (
	deadlineKeepsSession defect = "deadline-keeps-session"
	cancelKeepsSession   defect = "cancel-keeps-session"
	closeAll             defect = "close-all"
	closeIsRelease       defect = "close-is-release"
	statusQuery          defect = "status-query"
	renewByResend        defect = "renew-by-resend"
	releaseDiesWithCall  defect = "release-dies-with-call"

	oddCancelLingers       defect = "odd-cancel-lingers"       // waits 0.3 s for the answer to a cancelled call before it closes
	oddExclusive           defect = "odd-exclusive"            // has a session for each call that is under way
	oddClosesUnused        defect = "odd-closes-unused"        // closes a session as soon as nothing uses it
	oddUnsentIndeterminate defect = "odd-unsent-indeterminate" // tells a call that was not sent by its deadline as indeterminate
)

var sessionDefects = []Defect{
	{string(deadlineKeepsSession), "deadline-closes", "forgets a call at its deadline and leaves its session open", []string{dialectCurrent}},
	{string(cancelKeepsSession), "cancel-closes", "forgets a call that is cancelled and leaves its session open", []string{dialectCurrent}},
	{string(closeAll), "exact-session", "has a session for each call that is under way, and closes all of them at the deadline of one", []string{dialectCurrent, dialectV0}},
	{string(closeIsRelease), "close-proves-nothing", "tells a release as released when its connection ends", []string{dialectCurrent, dialectV0}},
	{string(statusQuery), "no-renewal", "sends an acquire again when half of its wait is over, to ask how it stands", []string{dialectCurrent}},
	{string(renewByResend), "no-renewal", "sends the acquire again when half of the lease is over, to renew it", []string{dialectCurrent}},
	{string(releaseDiesWithCall), "release-known", "waits 0.3 s for the answer to a cancelled call, and does not release what it grants", []string{dialectCurrent}},
}

var sessionOdd = []defect{oddCancelLingers, oddExclusive, oddClosesUnused, oddUnsentIndeterminate}
