/**
 * Exists only in an engine's process: run() blocks the thread, cannot be cancelled, and frees its
 * memory only at exit.
 */

import type { Size } from '@matting/proto/contract/finishing.ts';
import { hashFile } from '../../models/cache-files.ts';
import { drawCheckInput } from '../../prepared/answer-check.ts';
import type { Answer, SessionSpec } from '../engine-protocol.ts';
import { formIo } from './form-io.ts';
import { type GraphInput, type GraphIo, preparedIo } from './graph-io.ts';
import type { RuntimeSpec, Session } from './session.ts';

export type { RuntimeSpec, Session };

/** A GPU chooses kernels and allocates in its first run, so the second shows the usual time. */
const WARM_UP_RUNS_CPU = 1;
const WARM_UP_RUNS_GPU = 2;

/** Checks the file again: a load may come hours after the start's check. 0.15 s for 176 MB. */
async function requireUnaltered(path: string, sha256: string | undefined): Promise<void> {
  if (sha256 === undefined) return;
  if ((await hashFile(path)) === sha256) return;
  throw new Error(`${path} was altered since it was checked and is not loaded`);
}

export class NoMatteError extends Error {
  constructor(cause: Error) {
    super(`${cause.message} for this picture`, { cause });
    this.name = 'NoMatteError';
  }
}

export class LoadedModel {
  readonly #graph: LoadedGraph;
  readonly #spec: SessionSpec;

  private constructor(graph: LoadedGraph, spec: SessionSpec) {
    this.#graph = graph;
    this.#spec = spec;
  }

  /** Models come by path: a buffer would hold the weights twice. `graph` is a probe's. */
  static async load(
    spec: SessionSpec,
    graph?: Uint8Array,
  ): Promise<{ model: LoadedModel; warmMs: number }> {
    const source = spec.path ?? graph;
    if (source === undefined) throw new Error('neither a path nor a graph to load');
    if (spec.path !== undefined) await requireUnaltered(spec.path, spec.sha256);
    for (const { path, sha256 } of spec.data ?? []) await requireUnaltered(path, sha256);
    const model = new LoadedModel(await loadGraph(spec, source), spec);
    return { model, warmMs: await model.#warmUp() };
  }

  /**
   * An added model's graph may fail on one picture: it divides by zero on a flat one, a layer is
   * larger than a narrow one, or memory runs out. If it still answers the check picture, the engine
   * is sound.
   * @param rgb HWC bytes
   * @returns an alpha that is valid until the next run
   * @throws NoMatteError if the picture is at fault
   */
  async run(rgb: Uint8Array, size?: Size): Promise<Answer> {
    const input = this.#graph.io.input(rgb, size);
    try {
      return await answerOf(this.#graph, input);
    } catch (error) {
      if (this.#spec.form === undefined || !(await this.#answersCheckPicture())) throw error;
      throw new NoMatteError(error as Error);
    }
  }

  async #answersCheckPicture(): Promise<boolean> {
    try {
      await answerOf(this.#graph, this.#graph.io.input(this.#checkPicture()));
      return true;
    } catch {
      // The caller reports the error of the first run.
      return false;
    }
  }

  /** Flat grey for a prepared graph: if it rescaled by minimum and maximum, it would give 0/0. */
  #checkPicture(): Uint8Array {
    const { inputWidth, inputHeight, form } = this.#spec;
    if (form !== undefined) return drawCheckInput(this.#spec);
    return Buffer.alloc(3 * inputWidth * inputHeight, 128);
  }

  async #warmUp(): Promise<number> {
    const { provider } = this.#spec;
    const picture = this.#checkPicture();
    let warmMs = 0;
    for (let i = 0; i < (provider === 'cpu' ? WARM_UP_RUNS_CPU : WARM_UP_RUNS_GPU); i++) {
      const start = performance.now();
      await answerOf(this.#graph, this.#graph.io.input(picture));
      warmMs = performance.now() - start;
    }
    return warmMs;
  }
}

interface LoadedGraph {
  readonly session: Session;
  readonly io: GraphIo;
}

async function answerOf({ session, io }: LoadedGraph, input: GraphInput): Promise<Answer> {
  return io.answer(await session.run({ [io.inputName]: input }, io.outputNames));
}

async function loadGraph(spec: SessionSpec, source: string | Uint8Array): Promise<LoadedGraph> {
  const session = await openSession(spec, source);
  const { form, inputName, outputName } = spec;
  if (form === undefined) {
    const io = preparedIo(
      spec,
      session.inputs.map(({ name }) => name),
    );
    requireNames(session, io);
    return { session, io };
  }
  requireNames(session, { inputName, outputNames: [outputName] });
  const input = session.inputs.find(({ name }) => name === inputName);
  const output = session.outputs.find(({ name }) => name === outputName);
  if (!input || !output) throw new Error('the runtime does not describe its tensors');
  return { session, io: formIo(spec, form, { input, output }) };
}

/** Imports only the model's own runtime, since each takes tens of megabytes. */
export async function openSession(
  spec: RuntimeSpec,
  source: string | Uint8Array,
): Promise<Session> {
  if (spec.cInterface !== undefined && spec.form === undefined) {
    const { openOnnxCSession } = await import('./onnx-c-session.ts');
    return openOnnxCSession(spec, source);
  }
  if (spec.openvino === undefined) {
    const { openOnnxSession } = await import('./onnx-session.ts');
    return await openOnnxSession(spec, source);
  }
  const { openOpenvinoSession } = await import('./openvino-session.ts');
  return openOpenvinoSession(spec, source);
}

function requireNames(
  session: Session,
  { inputName, outputNames: wanted }: Pick<GraphIo, 'inputName' | 'outputNames'>,
): void {
  const inputNames = session.inputs.map(({ name }) => name);
  const outputNames = session.outputs.map(({ name }) => name);
  if (!inputNames.includes(inputName) || inputNames.length !== 1) {
    throw new Error(`the graph's inputs are ${inputNames.join(', ')}, not ${inputName}`);
  }
  const missing = wanted.find(name => !outputNames.includes(name));
  if (missing !== undefined) {
    throw new Error(`the graph's outputs are ${outputNames.join(', ')}, without ${missing}`);
  }
}
