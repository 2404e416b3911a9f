//go:build !unix

package verify

import "os/exec"

func OwnGroup(*exec.Cmd) {}

// KillGroup kills a command; there are no process groups here.
func KillGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = cmd.Process.Kill()
	}
}
