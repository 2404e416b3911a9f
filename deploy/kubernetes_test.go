package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"tornwire/internal/cli"
	"tornwire/verify"
)

// manifest is as much of one as the tests look at; unknown fields are let through.
type manifest struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		CompletionMode       string `yaml:"completionMode"`
		Completions          int
		Parallelism          int
		BackoffLimit         *int `yaml:"backoffLimit"`
		BackoffLimitPerIndex *int `yaml:"backoffLimitPerIndex"`
		PodFailurePolicy     struct {
			Rules []struct {
				Action      string
				OnExitCodes struct {
					ContainerName string `yaml:"containerName"`
					Operator      string
					Values        []int
				} `yaml:"onExitCodes"`
			}
		} `yaml:"podFailurePolicy"`
		Template struct {
			Spec struct {
				RestartPolicy string `yaml:"restartPolicy"`
				Containers    []struct {
					Name, Image string
					Args        []string
					Env         []struct{ Name string }
				}
			}
		}
	}
}

// jobOf is the one Job of a file.
func jobOf(t *testing.T, file string) manifest {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var jobs []manifest
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var m manifest
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if m.Kind == "Job" {
			jobs = append(jobs, m)
		}
	}
	if len(jobs) != 1 || jobs[0].APIVersion != "batch/v1" || len(jobs[0].Spec.Template.Spec.Containers) != 1 || jobs[0].Spec.Template.Spec.RestartPolicy != "Never" {
		t.Fatalf("%s: %+v", file, jobs)
	}
	return jobs[0]
}

// TestSweep: the Job has a pod for each shard, its command line is right in each, and a
// verdict is not tried again.
func TestSweep(t *testing.T) {
	job := jobOf(t, "kubernetes/sweep.yaml")
	s := job.Spec
	if s.CompletionMode != "Indexed" || s.Parallelism != s.Completions || s.BackoffLimitPerIndex == nil {
		t.Errorf("%+v", s)
	}
	action := map[int]string{}
	for _, r := range s.PodFailurePolicy.Rules {
		for _, code := range r.OnExitCodes.Values {
			if r.OnExitCodes.Operator != "In" || r.OnExitCodes.ContainerName != s.Template.Spec.Containers[0].Name || action[code] != "" {
				t.Errorf("exit code %d: %+v", code, r)
			}
			action[code] = r.Action
		}
	}
	for code, want := range map[int]string{
		verify.ExitUnsafe: "FailIndex", verify.ExitInconclusive: "FailIndex", verify.ExitNonStrict: "FailIndex", verify.ExitUsage: "FailIndex",
		verify.ExitUnreachable: "Count", verify.ExitInternal: "Count",
	} {
		if action[code] != want {
			t.Errorf("exit code %d: %q, not %q", code, action[code], want)
		}
	}
	all := map[string]bool{}
	for i := range s.Completions {
		t.Setenv("JOB_COMPLETION_INDEX", fmt.Sprint(i))
		var args []string
		for _, a := range s.Template.Spec.Containers[0].Args {
			if !strings.HasPrefix(a, "--report=") {
				args = append(args, a)
			}
		}
		var out, errs bytes.Buffer
		if code := cli.Main(append(args, "--list"), strings.NewReader(""), &out, &errs); code != 0 {
			t.Fatalf("shard %d: exit code %d: %s", i, code, &errs)
		}
		for id := range strings.Lines(out.String()) {
			if all[id] {
				t.Fatalf("%s is in two shards", strings.TrimSpace(id))
			}
			all[id] = true
		}
	}
	if whole, err := verify.NewPlan(verify.Options{Sweep: verify.SweepFull}); err != nil || len(all) != len(whole.Cases) {
		t.Errorf("the shards have %d cases, not %d, %v", len(all), len(whole.Cases), err)
	}
}

// TestMerge: what is joined is what the pods of the sweep write.
func TestMerge(t *testing.T) {
	sweep, merge := jobOf(t, "kubernetes/sweep.yaml").Spec, jobOf(t, "kubernetes/merge.yaml").Spec
	c := sweep.Template.Spec.Containers[0]
	i := slices.IndexFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--report=json=") })
	if i < 0 || len(c.Env) != 1 {
		t.Fatalf("%+v", c)
	}
	pattern := strings.TrimPrefix(c.Args[i], "--report=json=")
	var want []string
	for n := range sweep.Completions {
		want = append(want, strings.ReplaceAll(pattern, "$("+c.Env[0].Name+")", fmt.Sprint(n)))
	}
	args := merge.Template.Spec.Containers[0].Args
	if args[0] != "merge" || !slices.Equal(args[2:], want) || merge.BackoffLimit == nil || *merge.BackoffLimit != 0 {
		t.Errorf("%q, not of %q", args, want)
	}
}
