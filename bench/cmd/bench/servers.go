package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// server is a Kafka or ZooKeeper that one of the scripts in scripts/servers runs.
type server struct {
	script, dir, address string
	pid                  int
}

// startServer starts it on a free port. What it writes lies in dir; one that runs there already is taken over.
func startServer(ctx context.Context, root, script, dir, pidFile string) (*server, error) {
	s := &server{script: filepath.Join(root, "scripts", "servers", script), dir: dir}
	if out, err := s.call(ctx, "start", "--port", "auto"); err != nil {
		return nil, fmt.Errorf("%s start: %w\n%s", script, err, out)
	}
	out, err := s.call(ctx, "address")
	if err != nil {
		return nil, fmt.Errorf("%s address: %w\n%s", script, err, out)
	}
	s.address = strings.TrimSpace(out)
	b, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return nil, err
	}
	s.pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	return s, err
}

func (s *server) call(ctx context.Context, command string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, s.script, append([]string{command, "--dir", s.dir}, args...)...).CombinedOutput()
	return string(out), err
}

// end stops the server; without keep its data go, too.
func (s *server) end(keep bool) error {
	command := "clean"
	if keep {
		command = "stop"
	}
	if out, err := s.call(context.Background(), command); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", s.script, command, err, out)
	}
	return nil
}

// dropTopics removes the topics whose names begin so.
func (b *bench) dropTopics(ctx context.Context, prefix string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.kafka.address))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	all, err := adm.ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	var gone []string
	for _, name := range all.Names() {
		if strings.HasPrefix(name, prefix) {
			gone = append(gone, name)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	done, err := adm.DeleteTopics(ctx, gone...)
	if err = errors.Join(err, done.Error()); err != nil {
		return fmt.Errorf("removing topics: %w", err)
	}
	return nil
}
