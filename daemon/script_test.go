package daemon_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	_ "github.com/tridentd/tridentd/connect/blob" // as the program has it
	"github.com/tridentd/tridentd/daemon"
	"github.com/tridentd/tridentd/internal/sqldb"
	"github.com/tridentd/tridentd/internal/testenv"
)

// promptRace spares processes with the race detector the second that they would wait at their end.
const promptRace = "atexit_sleep_ms=0"

// TestMain makes the test's own program answer to the name tridentd, for scripts and for tests that need a process.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", promptRace) //nolint:errcheck // a valid name
	testscript.Main(m, map[string]func(){"tridentd": func() { daemon.Main() }})
}

// TestScript runs the scripts of testdata/script: the command line as users meet it.
func TestScript(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("TRIDENTD_UPDATE_SCRIPTS") == "1",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"eventually": eventually,
			"exit":       exitCommand,
			"same-json":  sameJSON,
			"sqlite":     sqlite,
		},
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", promptRace)
			env.Setenv("FLIGHTS", filepath.Join(root, "examples", "flights"))
			return nil
		},
	})
}

// exitCommand is the script command `exit CODE COMMAND ARGS…`: the command must end with just this code.
func exitCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE COMMAND ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	code := 0
	var e *exec.ExitError
	switch {
	case errors.As(err, &e):
		code = e.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if code != want {
		ts.Fatalf("%s ended with %d, want %d", args[1], code, want)
	}
}

// eventually is the script command `eventually PATTERN COMMAND ARGS…`: the command is run until it succeeds and its
// output matches.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND ARGS...")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("no output that matches %s within %s", pattern, patience)
		}
	}
}

// sqlite is the script command `sqlite FILE STATEMENT`: its output are the rows, with blanks between the values. A file that isn't there is
// made.
func sqlite(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sqlite FILE STATEMENT")
	}
	db, err := sqldb.OpenSQLite(ts.MkAbs(args[0]))
	ts.Check(err)
	defer db.Close() //nolint:errcheck // the statement has told
	rows, err := db.QueryContext(context.Background(), args[1])
	ts.Check(err)
	defer rows.Close() //nolint:errcheck // Err tells
	columns, err := rows.Columns()
	ts.Check(err)
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		ts.Check(rows.Scan(into...))
		for i, v := range values {
			fmt.Fprint(ts.Stdout(), strings.Repeat(" ", min(i, 1)), v.String) //nolint:errcheck // a buffer
		}
		fmt.Fprintln(ts.Stdout()) //nolint:errcheck // a buffer
	}
	ts.Check(rows.Err())
}

// sameJSON is the script command `same-json FILE FILE`: both hold the same document, blanks and the order of fields aside.
func sameJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same-json FILE FILE")
	}
	var docs [2]any
	for i, name := range args {
		if err := json.Unmarshal([]byte(ts.ReadFile(name)), &docs[i]); err != nil {
			ts.Fatalf("%s: %v", name, err)
		}
	}
	if !reflect.DeepEqual(docs[0], docs[1]) {
		ts.Fatalf("%s and %s differ", args[0], args[1])
	}
}
