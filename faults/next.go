package faults

import "time"

// nextWithin is the argument of the faults that need another frame to act.
var nextWithin = Arg{Name: "most", Default: time.Second, Max: time.Minute, Sentence: "the longest wait for the next frame; without one nothing is altered"}
