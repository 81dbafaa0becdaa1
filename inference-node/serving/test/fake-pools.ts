/** Pools whose every step a test holds. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Box, Size } from '@matting/proto/contract/finishing.ts';
import { TINY_LICENCE } from '@matting/test-support/tiny-model.ts';
import { soon } from '@matting/test-support/waiting.ts';
import { EngineCounters } from '../engine/pool/engine-counters.ts';
import type {
  EnginePool,
  EnginePoolSnapshot,
  EngineProcess,
  EngineRun,
} from '../engine/pool/engine-pool.ts';
import type { MatteRole, PreparedModel } from '../models/prepared-model.ts';
import type { Choose } from '../picture/infer-plan.ts';
import type {
  DecodeRequest,
  FinishedPicture,
  FinishRequest,
  PictureLease,
  PicturePool,
  SizedAlpha,
} from '../picture/pool/picture-pool.ts';

export const TINY_MODEL: PreparedModel = {
  model: 'tiny',
  version: '1',
  path: '/nowhere/tiny.onnx',
  sha256: 'ab'.repeat(32),
  weights: ['cd'.repeat(32)],
  precision: 'fp32',
  provider: 'cpu',
  inputWidth: 4,
  inputHeight: 4,
  inputName: 'input',
  outputName: 'output',
  normalisation: { mean: [0, 0, 0], std: [1, 1, 1] },
  colourOrder: 'rgb',
  activation: 'none',
  licence: TINY_LICENCE,
};

export type FakeStage = 'acquire' | 'decode' | 'infer' | 'resample' | 'finish';

/** Stages pass unless they are held. A held one waits for `letGo` or the signal. */
export class StageGates {
  readonly #held = new Map<FakeStage, PromiseWithResolvers<void>>();
  readonly #reached = new Map<FakeStage, PromiseWithResolvers<void>>();
  readonly #faults = new Map<FakeStage, unknown>();

  hold(stage: FakeStage): void {
    this.#held.set(stage, Promise.withResolvers());
    this.#reached.set(stage, Promise.withResolvers());
  }

  letGo(stage: FakeStage): void {
    this.#held.get(stage)?.resolve();
    this.#held.delete(stage);
  }

  reached(stage: FakeStage): Promise<void> {
    const reached = this.#reached.get(stage);
    if (reached === undefined) throw new Error(`${stage} is not held`);
    return soon(`an image to reach the stage ${stage}`, reached.promise);
  }

  failOnce(stage: FakeStage, error: unknown): void {
    this.#faults.set(stage, error);
  }

  async pass(stage: FakeStage, signal: AbortSignal): Promise<void> {
    const fault = this.#faults.get(stage);
    this.#faults.delete(stage);
    if (fault !== undefined) throw fault;
    signal.throwIfAborted();
    const held = this.#held.get(stage);
    if (held === undefined) return;
    this.#reached.get(stage)?.resolve();
    const aborted = new Promise<never>((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason), { once: true });
    });
    await Promise.race([held.promise, aborted]);
  }
}

export class FakeEnginePool implements EnginePool {
  readonly gates: StageGates;
  readonly runs: EngineRun[] = [];
  readonly #listeners = new Set<() => void>();
  #snapshot: EnginePoolSnapshot = {
    state: 'ready',
    failure: undefined,
    engines: 1,
    enginesReady: 1,
    enginesStuck: 0,
    running: 0,
    queued: 0,
    inferMs: 100,
    estimatedWaitMs: 0,
  };
  closedWithMs: number | undefined;
  /** Alpha of each pixel, or a pattern that repeats. */
  alpha: number | Uint8Array = 200;

  constructor(gates: StageGates) {
    this.gates = gates;
  }

  ready(): Promise<void> {
    return Promise.resolve();
  }

  async run(run: EngineRun) {
    // Like the real pools, nothing takes a call that is over.
    run.signal.throwIfAborted();
    this.runs.push(run);
    const down = new AbortController();
    const leave = () => {
      const { state, enginesReady } = this.#snapshot;
      if (run.failsWhenDown !== true || state === 'starting' || enginesReady > 0) return;
      down.abort(new ContractError('ENGINE_LOST', 'none is left'));
    };
    const stop = this.onChange(leave);
    await this.gates.pass('infer', AbortSignal.any([run.signal, down.signal])).finally(stop);
    const { inputWidth, inputHeight } = TINY_MODEL;
    const size = { width: inputWidth, height: inputHeight };
    const alpha = Buffer.alloc(inputWidth * inputHeight, this.alpha);
    return { alpha, size, waitMs: 1, inferMs: 2 };
  }

  set(change: Partial<EnginePoolSnapshot>): void {
    this.#snapshot = { ...this.#snapshot, ...change };
    for (const listener of this.#listeners) listener();
  }

  snapshot(): EnginePoolSnapshot {
    return this.#snapshot;
  }

  metrics() {
    const runs = { succeeded: this.runs.length, refused: 0, failed: 0, lost: 0, dropped: 0 };
    const { deaths } = new EngineCounters();
    return { runs, deaths, busyS: 0, loadMs: 0, warmMs: 0 };
  }

  processes(): EngineProcess[] {
    return [];
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get listenerCount(): number {
    return this.#listeners.size;
  }

  async close(graceMs: number): Promise<void> {
    this.closedWithMs = graceMs;
  }
}

export class FakePicturePool implements PicturePool {
  readonly capabilities: PicturePool['capabilities'];
  readonly gates: StageGates;
  readonly decoded: DecodeRequest[] = [];
  readonly resampled: Size[] = [];
  /** Kinds and widths of transformed inputs. */
  readonly inputs: [kind: string, width: number][] = [];
  /** Undefined: the whole picture. */
  readonly parts: (Box | undefined)[] = [];
  /** The mattes that each trimap came from. */
  readonly refined: MatteRole[][] = [];
  nothingUnsure = false;
  /** With the mattes of a `merge` before. */
  readonly finished: FinishRequest[] = [];
  /** Crops that hints request. */
  crops: Box[] = [];
  readonly cropMattes: SizedAlpha[] = [];
  /** Keeps the first matte. */
  choose: Choose = (mattes, further) => ({
    mattes: mattes.slice(0, mattes.length - further).map(({ role }, at) => ({ at, role })),
    settled: true,
  });
  result = Buffer.from('a result');
  subject: FinishedPicture['subject'];
  leasesOut = 0;
  releases = 0;
  #failure: string | undefined;
  readonly #listeners = new Set<() => void>();

  constructor(gates: StageGates, capabilities: Partial<PicturePool['capabilities']> = {}) {
    this.gates = gates;
    this.capabilities = {
      inputFormats: ['jpeg', 'png', 'webp', 'avif'],
      outputFormats: ['png', 'webp', 'avif'],
      jxlPixelsMax: 0,
      ...capabilities,
    };
  }

  async acquire(_priority: 'sync' | 'async', signal: AbortSignal): Promise<PictureLease> {
    await this.gates.pass('acquire', signal);
    this.leasesOut += 1;
    let held = true;
    let merged: FinishRequest | undefined;
    const crops = [...this.crops];
    return {
      waitMs: 3,
      decode: async (request, decodeSignal) => {
        decodeSignal.throwIfAborted();
        this.decoded.push(request);
        await this.gates.pass('decode', decodeSignal);
        const modelInputs = request.modelInputs.map(size =>
          Buffer.alloc(size.width * size.height * 3),
        );
        return { format: 'png', width: 8, height: 6, modelInputs, decodeMs: 4 };
      },
      resample: async (size, { input, part }, resampleSignal) => {
        resampleSignal.throwIfAborted();
        if (input === undefined) this.resampled.push(size);
        else this.inputs.push([input.kind, size.width]);
        this.parts.push(part);
        await this.gates.pass('resample', resampleSignal);
        return { rgb: Buffer.alloc(size.width * size.height * 3), resampleMs: 8 };
      },
      resampleUnsure: async (size, mattes, _part, resampleSignal) => {
        resampleSignal.throwIfAborted();
        this.refined.push(mattes.map(({ role }) => role));
        await this.gates.pass('resample', resampleSignal);
        if (this.nothingUnsure) return undefined;
        return { rgb: Buffer.alloc(size.width * size.height * 4), resampleMs: 8 };
      },
      choose: async (mattes, further, isLast, chooseSignal) => {
        chooseSignal.throwIfAborted();
        return this.choose(mattes, further, isLast);
      },
      merge: async (request, mergeSignal) => {
        mergeSignal.throwIfAborted();
        merged = request;
        return { crop: crops.shift(), refineMs: 1 };
      },
      takeCrop: async (matte, cropSignal) => {
        cropSignal.throwIfAborted();
        this.cropMattes.push(matte);
        return { crop: crops.shift(), refineMs: 1 };
      },
      finish: async (request, finishSignal) => {
        finishSignal.throwIfAborted();
        const { mattes, givenMatte } = merged ?? request;
        this.finished.push({ ...request, mattes, givenMatte });
        await this.gates.pass('finish', finishSignal);
        const input = { width: 8, height: 6 };
        const timings = { refineMs: 5, finishMs: request.finishing ? 7 : 0, encodeMs: 6 };
        const thumbnail = request.thumbnail ? Buffer.from('thumbnail') : undefined;
        const matte = request.matte ? Buffer.alloc(300_000, 7) : undefined;
        const made = { file: this.result, thumbnail, matte, subject: this.subject };
        return { ...made, ...input, input, ...timings };
      },
      release: () => {
        this.releases += 1;
        if (held) this.leasesOut -= 1;
        held = false;
      },
    };
  }

  fail(failure: string): void {
    this.#failure = failure;
    for (const listener of this.#listeners) listener();
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  snapshot() {
    return {
      state: this.#failure === undefined ? ('ready' as const) : ('failed' as const),
      failure: this.#failure,
      workers: 3,
      workersStuck: 0,
      busy: this.leasesOut,
      waiting: 0,
      decodeMsPerMegapixel: 10,
      encodeMsPerMegapixel: 20,
      decodeRates: new Map([['png', 12] as const]),
      encodeRates: new Map([['webp', 30] as const]),
    };
  }

  ends() {
    return {
      start: 0,
      idle: 0,
      image: 0,
      time_budget: 0,
      memory_budget: 0,
      stalled: 0,
      abandoned: 0,
      recycled: 0,
      closed: 0,
    };
  }

  processes() {
    return [];
  }

  async close(): Promise<void> {
    // nothing is open
  }
}
