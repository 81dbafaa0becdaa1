/** An engine for a single picture: loaded, run, ended. For probes and parity checks at start. */
import type { SessionSpec } from '../engine-protocol.ts';
import { shortenNativeError } from '../native-error.ts';
import { spawnEngineChild } from '../spawn-engine-child.ts';

/** What native libraries say before they fail is short. */
const OUTPUT_LENGTH_MAX = 64 * 1024;

export interface RunOnceOptions {
  readonly spec: SessionSpec;
  /** Where spec.path is undefined. */
  readonly graph?: Uint8Array;
  readonly rgb: Uint8Array;
  readonly childEnv: Readonly<Record<string, string>>;
  /** For load and run together. A driver that hangs is killed then. */
  readonly timeoutMs: number;
  /** Told what the last run of the warm-up took, ms. */
  readonly onWarm?: (warmMs: number) => void;
  /** From the kill until its process counts as stuck: KILL_WAIT_MAX_MS where absent. */
  readonly killWaitMaxMs?: number;
}

/**
 * Resolves with the alpha once the process is gone. Rejects with one line that says what is missing
 * or wrong; also where the process does not die: a machine on which one does not is of no use.
 */
export function runOnce(options: RunOnceOptions): Promise<Buffer> {
  const { spec, graph, rgb, childEnv, timeoutMs, killWaitMaxMs } = options;
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  let output = '';
  let alpha: Buffer | undefined;
  let failure: string | undefined;
  const timer = setTimeout(() => {
    failure = `no answer within ${timeoutMs} ms`;
    child.kill();
  }, timeoutMs);
  const child = spawnEngineChild(childEnv, {
    killWaitMaxMs,
    onOutput: text => {
      output = (output + text).slice(-OUTPUT_LENGTH_MAX);
    },
    onFrame: ({ head, parts }) => {
      if (head.kind === 'ready') {
        options.onWarm?.(head.warmMs);
        return void child.send({ kind: 'run', id: 1 }, [rgb]);
      }
      if (head.kind === 'started') return;
      if (head.kind === 'done') alpha = parts[0];
      else failure = head.message;
      child.kill();
    },
    onStuck: () => {
      clearTimeout(timer);
      const stuck = `process ${child.pid} was killed and does not die`;
      reject(new Error(failure === undefined ? stuck : `${explain(failure, output)}; ${stuck}`));
    },
    // Only now has all of its standard error come.
    onExit: exit => {
      clearTimeout(timer);
      if (alpha !== undefined) return resolve(alpha);
      failure ??= exit.error?.message ?? `the process ended: ${exit.signal ?? `code ${exit.code}`}`;
      reject(new Error(explain(failure, output)));
    },
  });
  void child.send({ kind: 'init', spec }, graph === undefined ? [] : [graph]);
  return promise;
}

/**
 * The binding says "Failed to load shared library" where the dynamic linker, whose words only go to
 * standard error, named it.
 */
function explain(failure: string, output: string): string {
  const short = shortenNativeError(failure);
  const missing = /([\w.+-]+\.so[\w.]*): cannot open shared object file/.exec(output);
  return missing === null ? short : `${missing[1]} is missing (${short})`;
}
