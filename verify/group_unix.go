//go:build unix

package verify

import (
	"os/exec"
	"syscall"
)

// OwnGroup puts a command into a process group of its own, so that what it
// starts can be ended with it.
func OwnGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// KillGroup kills a command and what it started.
func KillGroup(cmd *exec.Cmd) {
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ESRCH: nothing is left
	}
}
