/** The child process of a probe, bounded in time and memory. It does one thing at a time. */
import path from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { readMemoryLimitBytes } from '../../admission.ts';
import { ModelError } from '../../models/model-error.ts';
import type { Child, ChildExit } from '../../process/child.ts';
import type { Frame } from '../../process/frames.ts';
import type { FormSpec } from '../child/form-io.ts';
import { readCpuShare } from '../choice/engine-layout.ts';
import { saysMemoryRanOut } from '../engine-protocol.ts';
import { RUNTIME_RESERVED_BYTES } from '../pool/engine-bounds.ts';
import { spawnRuntimeChild } from '../pool/spawn-engine.ts';
import type { FromProbeChild, ToProbeChild } from './probe-child.ts';
import { causeOf } from './runtime-error-cause.ts';

const PROGRAM = path.join(import.meta.dirname, 'probe-child.ts');

const OUTPUT_LENGTH_MAX = 16 * 1024;

export interface ProbeProcessLimits {
  readonly memoryMaxBytes?: number;
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  readonly childEnv?: Readonly<Record<string, string>>;
}

export const PROBE_MEMORY_MAX_BYTES = 4 * 1024 ** 3;
const PROBE_TIMEOUT_MS = 120_000;
/** After a graph made a matte, this many further runs may each take as long. */
const FURTHER_RUNS = 16;

/** Share of the memory for the probe; the command itself needs the rest. */
const MEMORY_PART_MAX = 0.75;

export function memoryMaxHere(): number {
  return Math.min(PROBE_MEMORY_MAX_BYTES, Math.floor(MEMORY_PART_MAX * readMemoryLimitBytes()));
}

/** The run failed, but the child lives on. */
export class RunFailed extends Error {}

export type GraphRun = FromProbeChild['ran'] & { readonly values: Float32Array };
export type LoadedGraph = FromProbeChild['loaded'];

type ProbeReply = FromProbeChild[keyof FromProbeChild];

export class ProbeProcess {
  readonly #child: Child<ProbeReply>;
  readonly #memoryMaxBytes: number;
  readonly #timeoutMs: number;
  readonly #signal: AbortSignal | undefined;
  readonly #startedAtMs = performance.now();
  #timer: NodeJS.Timeout | undefined;
  readonly #gone = Promise.withResolvers<never>();
  #answered: (frame: Frame<ProbeReply>) => void = () => undefined;
  #doing = 'loading the graph';
  #failure: Error | undefined;
  #output = '';

  constructor(limits: ProbeProcessLimits) {
    const { signal, childEnv = {} } = limits;
    signal?.throwIfAborted();
    this.#timeoutMs = limits.timeoutMs ?? PROBE_TIMEOUT_MS;
    this.#memoryMaxBytes = limits.memoryMaxBytes ?? PROBE_MEMORY_MAX_BYTES;
    this.#signal = signal;
    // The process may end while nobody waits for an answer.
    this.#gone.promise.catch(() => undefined);
    this.#child = spawnRuntimeChild<ProbeReply>(PROGRAM, childEnv, {
      dataBytesMax: this.#memoryMaxBytes + RUNTIME_RESERVED_BYTES,
      onOutput: text => {
        this.#output = (this.#output + text).slice(-OUTPUT_LENGTH_MAX);
      },
      onFrame: frame => this.#answered(frame),
      onExit: exit => this.#end(this.#exitReason(exit)),
      onStuck: () => this.#end(new Error(`process ${this.#child.pid} does not die`)),
    });
    this.#allow(this.#timeoutMs);
    signal?.addEventListener('abort', this.#onAbort);
  }

  #allow(ms: number): void {
    clearTimeout(this.#timer);
    // Computed before the wait: the timer may fire late.
    const seconds = Math.round((performance.now() - this.#startedAtMs + ms) / 1000);
    this.#timer = setTimeout(() => {
      this.#kill(refusal(`the probe did not end within ${seconds} s: it was ${this.#doing}`));
    }, ms);
  }

  allowFurtherRuns({ seconds }: GraphRun): void {
    this.#allow(this.#timeoutMs + FURTHER_RUNS * 1000 * seconds);
  }

  async load(file: string): Promise<LoadedGraph> {
    const intraOpThreads = Math.max(1, Math.floor(await readCpuShare()));
    const runtime = { provider: 'cpu', intraOpThreads, sharesCores: false, allowCpuNodes: true };
    const order = { kind: 'load', spec: { ...runtime, path: file } } as ToProbeChild;
    const { head } = await this.#request(order, []).catch(error => {
      throw error instanceof RunFailed ? refusal(`it does not load: ${error.message}`) : error;
    });
    if (head.kind === 'loaded') return head;
    throw new Error(`the child said ${head.kind} to a load`);
  }

  /** @throws RunFailed; ModelError `prepare` once the child is gone */
  async run(spec: FormSpec, rgb: Uint8Array, size: Size): Promise<GraphRun> {
    this.#doing = 'running the graph';
    const { head, parts } = await this.#request({ kind: 'run', spec, size }, [rgb]);
    if (head.kind !== 'ran') throw new Error(`the child said ${head.kind} to a run`);
    // Copied, since a part may begin at any offset.
    return { ...head, values: new Float32Array(Uint8Array.from(parts[0] ?? []).buffer) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#kill(new Error('the probe is over'));
    await this.#gone.promise.catch(() => undefined);
  }

  async #request(order: ToProbeChild, parts: readonly Uint8Array[]): Promise<Frame<ProbeReply>> {
    const answer = new Promise<Frame<ProbeReply>>(resolve => {
      this.#answered = resolve;
    });
    void this.#child.send(order, parts);
    const frame = await Promise.race([answer, this.#gone.promise]);
    if (frame.head.kind !== 'failed') return frame;
    const { message } = frame.head;
    throw saysMemoryRanOut(message) ? this.#memoryRanOut() : new RunFailed(causeOf(message));
  }

  #memoryRanOut(): ModelError {
    return refusal(`${this.#doing} takes more memory than the ${this.#memoryMax} of a probe`);
  }

  get #memoryMax(): string {
    return `${(this.#memoryMaxBytes / 1024 ** 3).toFixed(1)} GiB (--memory-max)`;
  }

  readonly #onAbort = () => this.#kill(this.#signal?.reason as Error);

  #kill(failure: Error): void {
    this.#failure ??= failure;
    this.#child.kill();
  }

  #exitReason({ signal, code, error }: ChildExit): Error {
    if (saysMemoryRanOut(this.#output)) return this.#memoryRanOut();
    const how = error?.message ?? signal ?? `code ${code}`;
    // ONNX Runtime crashes if an allocation that it does not check fails.
    const why = `the graph is broken, or takes more than ${this.#memoryMax}`;
    return refusal(`the process that was ${this.#doing} ended by ${how}: ${why}`);
  }

  #end(reason: Error): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener('abort', this.#onAbort);
    this.#gone.reject(this.#failure ?? reason);
  }
}

function refusal(why: string): ModelError {
  return new ModelError('prepare', why);
}
