package verify

import (
	"strings"
	"testing"

	"tornwire/frames"
)

func TestCaseIDRoundTrip(t *testing.T) {
	for s, want := range map[string]CaseID{
		"ticketing/single/none": {Dialect: "ticketing", Workload: "single", Fault: NoFault},
		"ticketing/single/s2c.A.1@25:truncate-rst": {
			"ticketing", "single", FrameID{Dir: frames.ServerToClient, Op: "A", Nth: 1}, 25, "truncate-rst",
		},
		"ticketing-v0/expired/s2.c2s.auth.1@0:split": {
			"ticketing-v0", "expired", FrameID{2, frames.ClientToServer, "auth", 1}, 0, "split",
		},
		"x/y/s12.s2c.keepalive.345@6789:a-b": {"x", "y", FrameID{12, frames.ServerToClient, "keepalive", 345}, 6789, "a-b"},
	} {
		got, err := ParseCaseID(s)
		if err != nil || got != want {
			t.Errorf("%s is read as %+v, %v", s, got, err)
		}
		if want.String() != s {
			t.Errorf("%+v is written %s, not %s", want, want, s)
		}
	}
}

func TestMalformedCaseIDs(t *testing.T) {
	const form, tail, frame = caseForm, "is not of the form direction.op.nth@offset:fault", "is not of the form direction.op.nth"
	for s, want := range map[string]string{
		"":                                   form,
		"ticketing":                          form,
		"ticketing/single":                   form,
		"/single/none":                       form,
		"ticketing//none":                    form,
		"a/b/none/more":                      form,
		"a/b/":                               tail,
		"a/b/nothing":                        tail,
		"a/b/s2c.A.1":                        tail,
		"a/b/s2c.A.1@3":                      tail,
		"a/b/s2c.A.1:split":                  tail,
		"a/b/s2c.A.1@3:":                     tail,
		"a/b/s2c.A.1@:x":                     tail,
		"a/b/s2c.A.1@-1:x":                   tail,
		"a/b/s2c.A.1@+1:x":                   tail,
		"a/b/s2c.A.1@01:x":                   tail,
		"a/b/s2c.A.1@1e3:x":                  tail,
		"a/b/s2c.A.1@99999999999999999999:x": tail,
		"a/b/s2c.A.1@3:none":                 tail, // a run without a fault has no frame
		"a/b/@3:x":                           frame,
		"a/b/s2c.A@3:x":                      frame,
		"a/b/s2c..1@3:x":                     frame,
		"a/b/s2c.A.0@3:x":                    frame,
		"a/b/s2c.A.-1@3:x":                   frame,
		"a/b/s2c.A.01@3:x":                   frame,
		"a/b/s2c.A.x@3:x":                    frame,
		"a/b/s0.s2c.A.1@3:x":                 frame,
		"a/b/s01.s2c.A.1@3:x":                frame,
		"a/b/2.s2c.A.1@3:x":                  frame,
		"a/b/s2.s2c.A.1.1@3:x":               frame,
		"a/b/s2s.A.1@3:x":                    `"s2s"`,
	} {
		id, err := ParseCaseID(s)
		switch {
		case err == nil:
			t.Errorf("%q is read as %+v", s, id)
		case !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), s):
			t.Errorf("%q: error %q without %q, or without the id", s, err, want)
		case strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: error %q has two lines", s, err)
		}
	}
}

// FuzzParseCaseID: whatever is accepted is written back the same.
func FuzzParseCaseID(f *testing.F) {
	for _, s := range []string{
		"ticketing/single/none", "ticketing/single/s2c.A.1@25:truncate-rst", "a/b/s3.c2s.auth.1@0:x", "a/b/s2c.A.1@3:none", "//", "a/b/@:",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseCaseID(s)
		if err != nil {
			return
		}
		if id.String() != s {
			t.Fatalf("%q is written back as %q", s, id)
		}
		if again, err := ParseCaseID(id.String()); err != nil || again != id {
			t.Fatalf("%q is %+v, then %+v, %v", s, id, again, err)
		}
	})
}
