package toxics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// Attribute is one argument of a type. All are whole numbers; one that is left
// out is 0, which is refused where Min is over 0.
type Attribute struct {
	Name     string
	Min, Max int64
	Unit     string // "ms", "µs", "KB/s", "bytes"
	Sentence string
}

// Type is one type of toxic.
type Type struct {
	Name       string
	Attributes []Attribute
	Sentence   string // what it does, for lists
	// odd tells what is wrong with attributes that are each in their range.
	odd func(a Attributes) error
	// build makes the toxic for one pipe.
	build func(a Attributes, draws *rand.Rand) toxics.Toxic
}

func milliseconds(name, sentence string) Attribute {
	return Attribute{Name: name, Max: MaxDuration.Milliseconds(), Unit: "ms", Sentence: sentence}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

var types = []*Type{
	{
		Name:       "bandwidth",
		Attributes: []Attribute{{Name: "rate", Min: 1, Max: MaxRate, Unit: "KB/s", Sentence: "how much passes"}},
		Sentence:   "bytes pass at a limited rate, in portions of a tenth of a second at most",
		build:      func(a Attributes, _ *rand.Rand) toxics.Toxic { return &bandwidth{rate: a["rate"]} },
	},
	{
		Name: "latency",
		Attributes: []Attribute{
			milliseconds("latency", "the delay"),
			milliseconds("jitter", "how much more or less, drawn for each chunk"),
		},
		Sentence: "bytes come later, in their order",
		build: func(a Attributes, draws *rand.Rand) toxics.Toxic {
			return &latency{latency: a["latency"], jitter: a["jitter"], draws: draws}
		},
	},
	{
		Name:       "limit_data",
		Attributes: []Attribute{{Name: "bytes", Max: MaxBytes, Unit: "bytes", Sentence: "how many pass"}},
		Sentence:   "the connection ends with a FIN behind so many bytes",
		build:      func(a Attributes, _ *rand.Rand) toxics.Toxic { return &toxics.LimitDataToxic{Bytes: a["bytes"]} },
	},
	{
		Name:     "noop",
		Sentence: "nothing happens",
		build:    func(Attributes, *rand.Rand) toxics.Toxic { return &toxics.NoopToxic{} },
	},
	{
		Name:       "reset_peer",
		Attributes: []Attribute{milliseconds("timeout", "from the first byte, or the sender's end, to the RST")},
		Sentence:   "nothing passes, and the connection ends with an RST",
		build:      func(a Attributes, _ *rand.Rand) toxics.Toxic { return &resetPeer{timeout: ms(a["timeout"])} },
	},
	{
		Name: "slicer",
		Attributes: []Attribute{
			{Name: "average_size", Min: 1, Max: MaxSlice, Unit: "bytes", Sentence: "the size of a slice"},
			{Name: "size_variation", Max: MaxSlice - 1, Unit: "bytes", Sentence: "how much more or less, drawn for each cut; less than average_size"},
			{Name: "delay", Max: MaxDuration.Microseconds(), Unit: "µs", Sentence: "the pause behind each slice"},
		},
		Sentence: "bytes come in slices",
		odd: func(a Attributes) error {
			if v, most := a["size_variation"], a["average_size"]-1; v > most {
				return fmt.Errorf("attributes.size_variation is %d, not 0 to %d (less than average_size)", v, most)
			}
			return nil
		},
		build: func(a Attributes, draws *rand.Rand) toxics.Toxic {
			return &slicer{
				average: int(a["average_size"]), variation: int(a["size_variation"]),
				delay: time.Duration(a["delay"]) * time.Microsecond, draws: draws,
			}
		},
	},
	{
		Name:       "slow_close",
		Attributes: []Attribute{milliseconds("delay", "how much later")},
		Sentence:   "the sender's end comes later",
		build:      func(a Attributes, _ *rand.Rand) toxics.Toxic { return &toxics.SlowCloseToxic{Delay: a["delay"]} },
	},
	{
		Name:       "timeout",
		Attributes: []Attribute{milliseconds("timeout", "from the last byte, or the start, to the FIN; 0 is never")},
		Sentence:   "nothing passes, and the connection ends with a FIN once nothing came for so long",
		build:      func(a Attributes, _ *rand.Rand) toxics.Toxic { return &timeout{timeout: ms(a["timeout"])} },
	},
}

// Types lists the types by name. They are not to be altered.
func Types() []*Type { return slices.Clone(types) }

func typeOf(name string) (*Type, error) {
	i := slices.IndexFunc(types, func(t *Type) bool { return t.Name == name })
	if i >= 0 {
		return types[i], nil
	}
	var names []string
	for _, t := range types {
		names = append(names, t.Name)
	}
	return nil, fmt.Errorf("type %q is none of %s", brief(name), strings.Join(names, ", "))
}

func (t *Type) attribute(name string) (Attribute, error) {
	var names []string
	for _, a := range t.Attributes {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	if names == nil {
		return Attribute{}, fmt.Errorf("attributes.%s: %s has no attributes", brief(name), t.Name)
	}
	return Attribute{}, fmt.Errorf("attributes.%s is none of %s", brief(name), strings.Join(names, ", "))
}

// brief keeps a message short when what it quotes is not.
func brief(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
