/**
 * Ends test files that do not end by themselves: a process that spins in native code heeds neither
 * the runner's time limit nor SIGTERM, and would hold up the whole run without a word.
 */
import { execFile } from 'node:child_process';
import path from 'node:path';

const LOOK_MS = 5_000;

/**
 * Until the returned function is called, children that run one of the files (absolute paths) and
 * are older than that are killed and named. Others, a server for all files among them, live on.
 */
export function killStuckFiles(files: readonly string[], ageMaxMs: number): () => void {
  const watched = new Set(files);
  // Not ps's own idea of a process's age, which a machine whose clock was set gets wrong.
  const seenAtMs = new Map<number, number>();
  const timer = setInterval(() => {
    const columns = 'pid=,ppid=,args=';
    execFile('ps', ['-A', '-o', columns], { maxBuffer: 16 * 1024 * 1024 }, (error, stdout) => {
      if (error) console.error(`stuck test files cannot be found: ${error.message}`);
      else {
        for (const line of stdout.split('\n')) killIfStuck(line, { watched, seenAtMs, ageMaxMs });
      }
    });
  }, LOOK_MS);
  return () => clearInterval(timer);
}

interface Watch {
  readonly watched: ReadonlySet<string>;
  readonly seenAtMs: Map<number, number>;
  readonly ageMaxMs: number;
}

function killIfStuck(line: string, { watched, seenAtMs, ageMaxMs }: Watch): void {
  const [pid, parent, ...command] = line.trim().split(/\s+/);
  const file = path.resolve(command.at(-1) ?? '');
  if (Number(parent) !== process.pid || !watched.has(file)) return;
  const child = Number(pid);
  const sinceMs = seenAtMs.get(child) ?? performance.now();
  seenAtMs.set(child, sinceMs);
  if (performance.now() - sinceMs < ageMaxMs) return;
  console.error(`killed, it did not end by itself: ${file}`);
  try {
    process.kill(child, 'SIGKILL');
  } catch {
    // It ended since ps looked.
  }
}
