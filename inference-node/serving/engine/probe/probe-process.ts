/** The child of a probe does one thing at a time, bounded in time and memory. */
import path from 'node:path';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { readMemoryLimitBytes } from '../../admission.ts';
import { ModelError } from '../../models/model-error.ts';
import type { Child, ChildExit } from '../../process/child.ts';
import type { Frame } from '../../process/frames.ts';
import type { FormSpec } from '../child/form-ends.ts';
import { readCpuShare } from '../choice/engine-layout.ts';
import { saysMemoryRanOut } from '../engine-protocol.ts';
import { RUNTIME_RESERVED_BYTES } from '../pool/engine-bounds.ts';
import { spawnRuntimeChild } from '../pool/spawn-engine.ts';
import { causeOf } from './cause.ts';
import type { FromProbeChild, OutputValues, ToProbeChild } from './probe-protocol.ts';

const PROGRAM = path.join(import.meta.dirname, 'probe-child.ts');

const OUTPUT_LENGTH_MAX = 16 * 1024;

export interface ProbeProcessLimits {
  /** The bound is for the memory that the child takes for itself. */
  readonly memoryMaxBytes?: number;
  /** The bound is for the whole probe. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** The child gets this environment, as engines do. */
  readonly childEnv?: Readonly<Record<string, string>>;
}

export const PROBE_MEMORY_MAX_BYTES = 4 * 1024 ** 3;
const PROBE_TIMEOUT_MS = 120_000;

/** The command itself takes the rest. */
const MEMORY_PART_MAX = 0.75;

/** The most memory for a process that measures or compares: less than its container has. */
export function memoryMaxHere(): number {
  return Math.min(PROBE_MEMORY_MAX_BYTES, Math.floor(MEMORY_PART_MAX * readMemoryLimitBytes()));
}

/** The graph failed in a run; the child lives on. */
export class RunFailed extends Error {}

export interface GraphRun {
  readonly seconds: number;
  readonly peakBytes: number;
  readonly outputs: readonly [OutputValues, ...OutputValues[]];
  /** The values are the named output's; empty where none was named. */
  readonly values: Float32Array;
}

export type LoadedGraph = FromProbeChild['loaded'];
export type { OutputValues };

type Said = FromProbeChild[keyof FromProbeChild];

export class ProbeProcess {
  readonly #child: Child<Said>;
  readonly #limits: ProbeProcessLimits;
  readonly #startedAtMs = performance.now();
  #endsAtMs = 0;
  #timer: NodeJS.Timeout | undefined;
  readonly #gone = Promise.withResolvers<void>();
  #answer: PromiseWithResolvers<Frame<Said>> | undefined;
  #doing = 'starting';
  #failure: Error | undefined;
  #output = '';

  constructor(limits: ProbeProcessLimits) {
    this.#limits = limits;
    const { timeoutMs = PROBE_TIMEOUT_MS, signal, childEnv = {} } = limits;
    signal?.throwIfAborted();
    this.#child = spawnRuntimeChild<Said>(PROGRAM, childEnv, {
      dataBytesMax: this.#memoryMaxBytes + RUNTIME_RESERVED_BYTES,
      onOutput: text => {
        this.#output = (this.#output + text).slice(-OUTPUT_LENGTH_MAX);
      },
      onFrame: frame => this.#answer?.resolve(frame),
      onExit: exit => this.#onExit(exit),
      onStuck: () => this.#end(new Error(`process ${this.#child.pid} does not die`)),
    });
    this.allow(timeoutMs);
    signal?.addEventListener('abort', this.#onAbort);
  }

  get #memoryMaxBytes(): number {
    return this.#limits.memoryMaxBytes ?? PROBE_MEMORY_MAX_BYTES;
  }

  get remainingMs(): number {
    return this.#endsAtMs - performance.now();
  }

  /** Allows so much time from now on, or what is left where that is longer. */
  allow(ms: number): void {
    const leftMs = Math.max(ms, this.remainingMs);
    this.#endsAtMs = performance.now() + leftMs;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      const seconds = Math.round((this.#endsAtMs - this.#startedAtMs) / 1000);
      this.#kill(refusal(`the probe did not end within ${seconds} s: it was ${this.#doing}`));
    }, leftMs);
  }

  /** Loads it for the CPU. @throws ModelError `prepare` where it does not load */
  async load(file: string): Promise<LoadedGraph> {
    this.#doing = 'loading the graph';
    const intraOpThreads = Math.max(1, Math.floor(await readCpuShare()));
    const runtime = { provider: 'cpu', intraOpThreads, sharesCores: false, allowCpuNodes: true };
    const order = { kind: 'load', spec: { ...runtime, path: file } } as ToProbeChild['load'];
    try {
      const { head } = await this.#ask(order, [], this.#doing);
      if (head.kind === 'loaded') return head;
      throw new Error(`the child said ${head.kind} to a load`);
    } catch (error) {
      if (error instanceof RunFailed) throw refusal(`it does not load: ${error.message}`);
      throw error;
    }
  }

  /** @throws RunFailed; ModelError `prepare` once the child is gone */
  async run(
    spec: FormSpec,
    outputs: readonly string[],
    rgb: Uint8Array,
    size: Size,
  ): Promise<GraphRun> {
    const told: ToProbeChild['run'] = { kind: 'run', spec, size, outputs };
    const { head, parts } = await this.#ask(told, [rgb], 'running the graph');
    if (head.kind !== 'ran') throw new Error(`the child said ${head.kind} to a run`);
    const [bytes = Buffer.alloc(0)] = parts;
    // A copy: a part may begin anywhere.
    const values = new Float32Array(Uint8Array.from(bytes).buffer);
    return { ...head, values };
  }

  /** Once it is gone. */
  async close(): Promise<void> {
    this.#kill(new Error('the probe is over'));
    await this.#gone.promise;
  }

  async #ask(
    told: ToProbeChild[keyof ToProbeChild],
    parts: readonly Uint8Array[],
    doing: string,
  ): Promise<Frame<Said>> {
    this.#doing = doing;
    this.#answer = Promise.withResolvers();
    // Its end may come while nobody waits for an answer.
    this.#answer.promise.catch(() => undefined);
    if (this.#failure !== undefined) throw this.#failure;
    void this.#child.send(told, parts);
    const frame = await this.#answer.promise;
    if (frame.head.kind === 'failed') throw this.#failed(frame.head.message);
    return frame;
  }

  #failed(message: string): Error {
    if (saysMemoryRanOut(message)) return this.#memoryRanOut();
    return new RunFailed(causeOf(message));
  }

  #memoryRanOut(): ModelError {
    return refusal(`${this.#doing} takes more memory than the ${this.#memoryMax} of a probe`);
  }

  get #memoryMax(): string {
    return `${(this.#memoryMaxBytes / 1024 ** 3).toFixed(1)} GiB (--memory-max)`;
  }

  readonly #onAbort = () => this.#kill(this.#limits.signal?.reason as Error);

  #kill(failure: Error): void {
    this.#failure ??= failure;
    this.#child.kill();
  }

  #onExit({ signal, code, error }: ChildExit): void {
    const how = error?.message ?? signal ?? `code ${code}`;
    // The runtime crashes where it does not look whether it got memory.
    const why = `the graph is broken, or takes more than ${this.#memoryMax}`;
    const ended = saysMemoryRanOut(this.#output)
      ? this.#memoryRanOut()
      : refusal(`the process that was ${this.#doing} ended by ${how}: ${why}`);
    this.#end(ended);
  }

  #end(failure: Error): void {
    clearTimeout(this.#timer);
    this.#limits.signal?.removeEventListener('abort', this.#onAbort);
    this.#failure ??= failure;
    this.#answer?.reject(this.#failure);
    this.#gone.resolve();
  }
}

function refusal(why: string): ModelError {
  return new ModelError('prepare', why);
}
