/**
 * What a pool and an engine's process say to each other (serving/process/frames.ts carries it).
 *
 *   pool                               engine
 *   init ─────────────────────────────► loads, warms up
 *        ◄──────────────────────────── ready | broken
 *   run + rgb, one or several ────────►
 *        ◄──────────────────────────── started    before native code blocks the engine's loop
 *        ◄──────────────────────────── done + alpha of each | failed
 *
 * One run at a time. An engine ends when its socket closes; there is no other word for it.
 */
import type { ExecutionProvider, PreparedModel } from '../models/prepared-model.ts';

/** ONNX Runtime's binding to Node: its file in the package, and in the folder of a provider. */
export const BINDING_FILE = 'onnxruntime_binding.node';

/**
 * In the environment that is made for engines, a folder to load the binding from in place of the
 * package's own. It becomes an argument of theirs (serving/engine/child/runtime-redirect.ts).
 */
export const RUNTIME_FOLDER_VARIABLE = 'ENGINE_RUNTIME_FOLDER';

export interface SessionSpec
  extends Pick<
    PreparedModel,
    | 'batches'
    | 'inputName'
    | 'outputName'
    | 'inputWidth'
    | 'inputHeight'
    | 'normalisation'
    | 'colourOrder'
    | 'activation'
  > {
  /** Absolute. Undefined: the graph's bytes come with init, as those of small probes do. */
  readonly path: string | undefined;
  /** Digest of the file at `path`, hexadecimal: another is not loaded. Undefined: any is. */
  readonly sha256: string | undefined;
  /** The only one that the binding gets: it runs, or the load fails. */
  readonly provider: ExecutionProvider;
  readonly intraOpThreads: number;
  /** Engines of other models run on the same cores. */
  readonly sharesCores: boolean;
  /**
   * false: a node of the graph that the provider cannot run fails the load, where ONNX Runtime
   * would quietly give it to the CPU. For probes; whole models keep small shape nodes on the CPU
   * rightly.
   */
  readonly allowCpuNodes: boolean;
}

export type ToEngine =
  /** One part where spec.path is undefined: the graph. */
  | { readonly kind: 'init'; readonly spec: SessionSpec }
  /** A part for each picture: rgb. As many as a graph of the model takes. */
  | { readonly kind: 'run'; readonly id: number };

export type FromEngine =
  /** warmMs: time of the last warm-up run with one picture. */
  | { readonly kind: 'ready'; readonly warmMs: number }
  /** The model cannot be loaded here; one line. */
  | { readonly kind: 'broken'; readonly message: string }
  | { readonly kind: 'started'; readonly id: number }
  /** A part for each picture, in their order: alpha. */
  | { readonly kind: 'done'; readonly id: number }
  | { readonly kind: 'failed'; readonly id: number; readonly message: string };
