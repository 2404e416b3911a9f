package scenarios

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// commandWord makes this binary the program of a command client: the words behind it say
// what it does.
const commandWord = "command-of-a-scenario"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == commandWord {
		if err := command(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(7)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// command asks for a key by hand, reads n bytes of the answer or to its end, and then does
// what its word says.
func command(words []string) error {
	switch words[0] {
	case "fail":
		return fmt.Errorf("as it was asked to")
	case "hang":
		fmt.Println("hanging")
		select {}
	}
	if os.Getenv(EnvAddr) != strings.Split(os.Getenv(EnvAddrs), ",")[0] {
		return fmt.Errorf("%s is %q, %s is %q", EnvAddr, os.Getenv(EnvAddr), EnvAddrs, os.Getenv(EnvAddrs))
	}
	for range map[string]int{"ask": 1, "ask-twice": 2}[words[0]] {
		if err := askAt(os.Getenv(EnvAddr)); err != nil {
			return err
		}
	}
	return nil
}

func askAt(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	_, nonce, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	sum := sha256.Sum256([]byte(nonce))
	// The same owner each time.
	if _, err := io.WriteString(c, base64.RawURLEncoding.EncodeToString(sum[:])+"\nA\x01\x05\x00\x00\x00\x00\x00\x00\x00\x07order-42\n"); err != nil {
		return err
	}
	_, err = r.ReadString('\n') // the grant, or what comes of it
	if text := fmt.Sprint(err); strings.Contains(text, "reset") || text == "EOF" {
		err = nil
	}
	return err
}
