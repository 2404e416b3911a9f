//go:build !unix

package verify

import "os/exec"

func ownGroup(*exec.Cmd) {}

// killGroup kills a command; there are no process groups here.
func killGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
	}
}
