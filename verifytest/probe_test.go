package verifytest

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"tornwire/adapter"
	"tornwire/adapter/reference"
	"tornwire/verify"
)

func TestProbe(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv("RUNS"))
	var wl []string
	if s := os.Getenv("WL"); s != "" {
		wl = strings.Split(s, ",")
	}
	var mu sync.Mutex
	first := map[string]string{}
	diff := map[string]int{}
	ex := map[string]string{}
	n := 0
	for range runs {
		b, err := verify.NewBubble(verify.Options{Dialect: os.Getenv("D"), Workloads: wl, Profile: "official", Sweep: os.Getenv("SWEEP")}, synctest.Wait)
		if err != nil {
			t.Fatal(err)
		}
		b.Transcribe = true
		lib := func(in Inside) adapter.Library { return reference.WithDial(reference.Dial(in.Dial), in.Seed) }
		next := make(chan verify.Case)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for c := range next {
					t.Run("x", func(t *testing.T) {
						var res verify.CaseResult
						synctest.Test(t, func(t *testing.T) { res = b.Run(t.Context(), c, lib) })
						mu.Lock()
						defer mu.Unlock()
						id := c.ID.String()
						n++
						if f, ok := first[id]; !ok {
							first[id] = res.Transcript
						} else if f != res.Transcript {
							diff[id]++
							ex[id] = res.Transcript
						}
						if res.Verdict != "safe" && res.Verdict != "skipped" {
							fmt.Println(id, res.Verdict, res.Reason)
						}
					})
				}
			})
		}
		seen := map[string]bool{}
		for _, c := range b.Cases() {
			if !seen[c.Workload.ID] {
				synctest.Test(t, func(t *testing.T) { b.Control(t.Context(), c.Workload, lib) })
				seen[c.Workload.ID] = true
			}
			next <- c
		}
		close(next)
		wg.Wait()
	}
	byW := map[string]int{}
	var ids []string
	for id := range diff {
		byW[strings.Split(id, "/")[1]]++
		ids = append(ids, id)
	}
	sort.Strings(ids)
	fmt.Println(n, "runs of", len(first), "cases; differing:", len(diff), byW)
	fmt.Println(strings.Join(ids, "\n"))
	for i, id := range ids {
		if i%max(len(ids)/5, 1) == 0 {
			fmt.Println("=====", id, diff[id])
			a, b := strings.Split(first[id], "\n"), strings.Split(ex[id], "\n")
			for j := range max(len(a), len(b)) {
				x, y := "", ""
				if j < len(a) {
					x = a[j]
				}
				if j < len(b) {
					y = b[j]
				}
				if x != y {
					fmt.Printf("- %s\n+ %s\n", x, y)
				} else {
					fmt.Printf("  %s\n", x)
				}
			}
		}
	}
}
