// Package filesink writes a pipeline's output to files in a folder: for each batch one file, named by its txid, or one in each folder that its
// records name (Record.Topic). Files are JSON lines, CSV or Parquet; whatever the form, a record's value is JSON.
//
// A file has its name only once it is whole and counts, so that readers never see half of a batch nor one that is taken back:
//
//	FOLDER/out-00000000000000000042.jsonl      what readers look at
//	FOLDER/.tridentd/p.out/…42.7.part          being written, of txid 42 under epoch 7
//	FOLDER/.tridentd/p.out/…0117.json          the 117th step of the sink's journal
//
// A batch is written aside and synced; then it is decided by one step of the journal, a file that is created only if it isn't there
// yet and lists the batch's files; then they are renamed. Each step holds the progress and its epoch, so that of two processes only one can take the next step: a
// former master that wakes up finds its step taken, and what it wrote stays aside. A claim finishes the renaming that a crash has
// cut off, and removes what was left aside.
//
// The folder must be on a file system with hard links that are atomic: a local one, or NFS.
package filesink
