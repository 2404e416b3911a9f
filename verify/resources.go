package verify

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// Resources is what a run took: of the machine, and of time in each of its phases and
// workloads. What the system does not tell is 0.
type Resources struct {
	CasesPerS  float64 `json:"cases_per_s"` // over the time of the phase "cases"
	ProcessorS float64 `json:"processor_s"` // of this process, in all its threads
	// MemoryMiB is the most that this process has had resident since it was started.
	MemoryMiB         float64        `json:"peak_memory_mib"`
	AdapterProcessorS float64        `json:"adapter_processor_s"`     // of the adapters that have ended, and of their children
	AdapterMemoryMiB  float64        `json:"adapter_peak_memory_mib"` // of the largest of them
	Phases            []Phase        `json:"phases"`
	Workloads         []WorkloadTime `json:"workloads"`
}

// Phase is a part of a run: "first" (the adapter's start and the sanity case), "cases",
// with each workload without a fault, "replays" (of findings) and "last".
type Phase struct {
	Phase   string  `json:"phase"`
	Seconds float64 `json:"seconds"`
}

// WorkloadTime is how long the cases of a workload took, each one's last try from its
// beginning to its end; they overlap.
type WorkloadTime struct {
	Workload string  `json:"workload"`
	Cases    int     `json:"cases"`
	Seconds  float64 `json:"seconds"`
	Longest  float64 `json:"longest_s"`
}

const phaseCases = "cases"

// consumed is what the system counts of this process and of its children that have ended.
type consumed struct {
	processor, children time.Duration
	memory, childMemory int64 // bytes
}

// stopwatch notes where a run is.
type stopwatch struct {
	mu     sync.Mutex
	before consumed
	phase  string
	since  time.Time
	phases []Phase
}

func startWatch() *stopwatch {
	u, _ := used()
	return &stopwatch{before: u, phase: "first", since: time.Now()}
}

// enter ends a phase and begins another.
func (s *stopwatch) enter(phase string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.phases = append(s.phases, Phase{s.phase, hundredths(now.Sub(s.since))})
	s.phase, s.since = phase, now
}

// end tells what a run took whose results are known.
func (s *stopwatch) end(results []Result) Resources {
	s.enter("")
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Resources{Phases: s.phases}
	r.conclude(results)
	u, ok := used()
	if !ok {
		return r
	}
	r.ProcessorS, r.MemoryMiB = hundredths(u.processor-s.before.processor), mebibytes(u.memory)
	if d := u.children - s.before.children; d > 0 {
		r.AdapterProcessorS, r.AdapterMemoryMiB = hundredths(d), mebibytes(u.childMemory)
	}
	return r
}

// workloadTimes adds up the cases that ran, the workload with the most time first.
func workloadTimes(results []Result) []WorkloadTime {
	of := map[string]*WorkloadTime{}
	for _, res := range results {
		id, err := ParseCaseID(res.Case)
		if err != nil || res.Seconds == 0 {
			continue
		}
		w := of[id.Workload]
		if w == nil {
			w = &WorkloadTime{Workload: id.Workload}
			of[id.Workload] = w
		}
		w.Cases++
		w.Seconds += res.Seconds
		w.Longest = max(w.Longest, res.Seconds)
	}
	list := []WorkloadTime{}
	for _, w := range of {
		w.Seconds = math.Round(w.Seconds*100) / 100
		list = append(list, *w)
	}
	slices.SortFunc(list, func(a, b WorkloadTime) int {
		if a.Seconds != b.Seconds {
			return int(math.Copysign(1, b.Seconds-a.Seconds))
		}
		return strings.Compare(a.Workload, b.Workload)
	})
	return list
}

// join adds what another shard took: its time in each phase if it was longer, its
// processor time, and its memory if it was more.
func (r *Resources) join(o Resources) {
	for _, p := range o.Phases {
		i := slices.IndexFunc(r.Phases, func(have Phase) bool { return have.Phase == p.Phase })
		if i < 0 {
			r.Phases = append(r.Phases, p)
		} else {
			r.Phases[i].Seconds = max(r.Phases[i].Seconds, p.Seconds)
		}
	}
	r.ProcessorS = math.Round((r.ProcessorS+o.ProcessorS)*100) / 100
	r.AdapterProcessorS = math.Round((r.AdapterProcessorS+o.AdapterProcessorS)*100) / 100
	r.MemoryMiB, r.AdapterMemoryMiB = max(r.MemoryMiB, o.MemoryMiB), max(r.AdapterMemoryMiB, o.AdapterMemoryMiB)
}

// conclude counts the cases that ran.
func (r *Resources) conclude(results []Result) {
	r.Workloads = workloadTimes(results)
	ran := 0
	for _, w := range r.Workloads {
		ran += w.Cases
	}
	for _, p := range r.Phases {
		if p.Phase == phaseCases && p.Seconds > 0 {
			r.CasesPerS = math.Round(float64(ran)/p.Seconds*10) / 10
		}
	}
}

func hundredths(d time.Duration) float64 { return math.Round(d.Seconds()*100) / 100 }

func mebibytes(n int64) float64 { return math.Round(float64(n)/(1<<20)*10) / 10 }

// textResources says in a line where the time went.
func (r *Report) textResources(b *strings.Builder) {
	u := r.Resources
	if u.CasesPerS == 0 {
		return
	}
	fmt.Fprintf(b, "%.0f cases a second;", u.CasesPerS)
	for i, p := range u.Phases {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, " %s %.1f s", p.Phase, p.Seconds)
	}
	if u.ProcessorS > 0 {
		fmt.Fprintf(b, "; %.1f s of processor time, %.0f MiB at the peak", u.ProcessorS, u.MemoryMiB)
	}
	if u.AdapterProcessorS >= 0.1 {
		fmt.Fprintf(b, "; the adapter's %.1f s, %.0f MiB", u.AdapterProcessorS, u.AdapterMemoryMiB)
	}
	b.WriteByte('\n')
}
