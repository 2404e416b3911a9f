package verify

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWorkloadTimes(t *testing.T) {
	got := workloadTimes([]Result{
		{Case: "ticketing/single/none", Seconds: 0.5},
		{Case: "ticketing/busy/none", Seconds: 2.25},
		{Case: "ticketing/single/s2c.A.1@0:truncate-rst", Seconds: 1},
		{Case: "ticketing/cancel/none"}, // skipped
		{Case: "ticketing/expired/none", Seconds: 1.5},
	})
	want := []WorkloadTime{{"busy", 1, 2.25, 2.25}, {"expired", 1, 1.5, 1.5}, {"single", 2, 1.5, 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestResources: a run says what it took, in the report and in a line.
func TestResources(t *testing.T) {
	t.Parallel()
	r := runPlan(t, Options{Workloads: []string{"single"}, Faults: []string{NoFault, "refuse"}, Profile: "official", Start: Library(referenceLibrary())})
	u := r.Resources
	var phases []string
	sum := 0.0
	for _, p := range u.Phases {
		phases = append(phases, p.Phase)
		sum += p.Seconds
	}
	if s := strings.Join(phases, " "); s != "first cases replays last" {
		t.Errorf("the phases are %s", s)
	}
	if sum <= 0 || sum > r.ElapsedS+0.2 {
		t.Errorf("the phases took %g s, and all %g s", sum, r.ElapsedS)
	}
	ran := r.Cases.Total - r.Cases.Skipped
	if len(u.Workloads) != 1 || u.Workloads[0].Workload != "single" || u.Workloads[0].Cases != ran || u.CasesPerS <= 0 {
		t.Errorf("of %d cases: %+v", ran, u)
	}
	if _, ok := used(); ok && (u.ProcessorS <= 0 || u.MemoryMiB < 1) {
		t.Errorf("%g s of processor time, %g MiB", u.ProcessorS, u.MemoryMiB)
	}
	if u.AdapterProcessorS < 0 {
		t.Errorf("the adapter's processor time is %g s", u.AdapterProcessorS)
	}
	if !strings.Contains(text(r), " cases a second; first ") {
		t.Errorf("the text says nothing of it:\n%s", text(r))
	}
}

func TestStopwatch(t *testing.T) {
	w := startWatch()
	w.since = w.since.Add(-2 * time.Second)
	w.enter(phaseCases)
	w.since = w.since.Add(-4 * time.Second)
	u := w.end([]Result{{Case: "ticketing/single/none", Seconds: 1}, {Case: "ticketing/busy/none", Seconds: 1}})
	if len(u.Phases) != 2 || u.Phases[0].Seconds < 2 || u.Phases[1].Seconds < 4 || u.CasesPerS != 0.5 {
		t.Errorf("%+v", u)
	}
}
