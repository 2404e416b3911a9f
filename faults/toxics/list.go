package toxics

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"tornwire/faults"
	"tornwire/frames"
)

// What is wrong with a name; the errors of With, Without and Replace wrap them.
var (
	ErrUnknown = errors.New("there is no such toxic")
	ErrExists  = errors.New("there is such a toxic already")
)

// List is an immutable list of stages for both directions, in the order in which
// bytes go through them. A nil list has none.
type List struct {
	seed   uint64
	stages []*stage
}

var _ faults.Stages = (*List)(nil)

// stage is a toxic whose arguments are right.
type stage struct {
	spec Spec
	kind *Type
	dir  frames.Direction
	seed uint64
}

// New makes a list. It refuses, with all problems in one error: an unknown type,
// stream or attribute, a value over a limit, a name that two have, and more than
// MaxStages.
func New(seed uint64, specs ...Spec) (*List, error) {
	l := &List{seed: seed}
	if len(specs) > MaxStages {
		return nil, fmt.Errorf("there are %d toxics, not 0 to %d", len(specs), MaxStages)
	}
	var problems []error
	for i, spec := range specs {
		st, err := l.stage(spec)
		if err != nil {
			problems = append(problems, fmt.Errorf("toxic %d: %w", i+1, err))
			continue
		}
		if l.index(st.spec.Name) >= 0 {
			problems = append(problems, fmt.Errorf("toxic %d: name %q: %w", i+1, st.spec.Name, ErrExists))
		}
		l.stages = append(l.stages, st)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *List) stage(spec Spec) (*stage, error) {
	spec, err := spec.filled()
	if err != nil {
		return nil, err
	}
	kind, err := typeOf(spec.Type)
	if err != nil {
		return nil, err
	}
	return &stage{spec: spec, kind: kind, dir: spec.direction(), seed: l.seed}, nil
}

// Specs lists the toxics in order, with their defaults filled in.
func (l *List) Specs() []Spec {
	specs := []Spec{}
	for _, st := range l.all() {
		specs = append(specs, st.described())
	}
	return specs
}

// Spec finds a toxic by its name.
func (l *List) Spec(name string) (Spec, bool) {
	i := l.index(name)
	if i < 0 {
		return Spec{}, false
	}
	return l.stages[i].described(), true
}

func (s *stage) described() Spec {
	spec := s.spec
	spec.Attributes = maps.Clone(spec.Attributes)
	return spec
}

// With returns the list with one more toxic at its end. Beside what New refuses
// the name may be there, ErrExists.
func (l *List) With(spec Spec) (*List, error) {
	next := l.copy()
	st, err := next.stage(spec)
	if err != nil {
		return nil, err
	}
	if l.index(st.spec.Name) >= 0 {
		return nil, fmt.Errorf("name %q: %w", st.spec.Name, ErrExists)
	}
	if len(next.stages) == MaxStages {
		return nil, fmt.Errorf("there are %d toxics, not 0 to %d", MaxStages+1, MaxStages)
	}
	next.stages = append(next.stages, st)
	return next, nil
}

// Without returns the list without a toxic. The name may be missing, ErrUnknown.
func (l *List) Without(name string) (*List, error) {
	i, err := l.find(name)
	if err != nil {
		return nil, err
	}
	next := l.copy()
	next.stages = slices.Delete(next.stages, i, i+1)
	return next, nil
}

// Replace returns the list with another toxic in the place of one, whose name it
// may keep. Its own name may be there already, ErrExists, or the other's be
// missing, ErrUnknown.
func (l *List) Replace(name string, spec Spec) (*List, error) {
	i, err := l.find(name)
	if err != nil {
		return nil, err
	}
	next := l.copy()
	st, err := next.stage(spec)
	if err != nil {
		return nil, err
	}
	if j := l.index(st.spec.Name); j >= 0 && j != i {
		return nil, fmt.Errorf("name %q: %w", st.spec.Name, ErrExists)
	}
	next.stages[i] = st
	return next, nil
}

func (l *List) copy() *List {
	if l == nil {
		return &List{}
	}
	return &List{seed: l.seed, stages: slices.Clone(l.stages)}
}

func (l *List) all() []*stage {
	if l == nil {
		return nil
	}
	return l.stages
}

func (l *List) index(name string) int {
	return slices.IndexFunc(l.all(), func(s *stage) bool { return s.spec.Name == name })
}

func (l *List) find(name string) (int, error) {
	i := l.index(name)
	if i >= 0 {
		return i, nil
	}
	names := []string{}
	for _, st := range l.all() {
		names = append(names, st.spec.Name)
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("name %q: %w, and no other", brief(name), ErrUnknown)
	}
	return 0, fmt.Errorf("name %q: %w; there is %s", brief(name), ErrUnknown, strings.Join(names, ", "))
}

// Len is the number of stages for a direction.
func (l *List) Len(dir frames.Direction) int {
	n := 0
	for _, st := range l.all() {
		if st.dir == dir {
			n++
		}
	}
	return n
}

// Open starts a pipe. It has two goroutines for each stage that acts on the
// session, until it is over or abandoned.
func (l *List) Open(session int, dir frames.Direction) faults.Pipe {
	p := newPipe(session, dir)
	p.Change(l)
	return p
}

// drawn is a stage that acts on a session, and its draws there.
type drawn struct {
	*stage
	draws *rand.Rand
}

// acting lists the stages that act on a session.
func (l *List) acting(session int, dir frames.Direction) []drawn {
	var out []drawn
	for _, st := range l.all() {
		if st.dir != dir {
			continue
		}
		draws := st.draws(session)
		if draws.Float64() < st.spec.Toxicity {
			out = append(out, drawn{st, draws})
		}
	}
	return out
}

// draws is the random stream of a stage in a session. Its first number is
// compared with the toxicity.
func (s *stage) draws(session int) *rand.Rand {
	key := binary.BigEndian.AppendUint64(nil, s.seed)
	key = binary.BigEndian.AppendUint64(key, uint64(session))
	key = append(key, byte(s.dir))
	key = append(key, s.spec.Name...)
	sum := sha256.Sum256(key)
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// same tells whether a running stage may go on as this one. The toxicity does
// not matter: it was compared already.
func (s *stage) same(o *stage) bool {
	return s == o || s.seed == o.seed && s.dir == o.dir && s.kind == o.kind && s.spec.Name == o.spec.Name &&
		maps.Equal(s.spec.Attributes, o.spec.Attributes)
}
