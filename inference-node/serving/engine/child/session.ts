/**
 * A graph that one of the runtimes has loaded. Each runtime is a file beside this one, and a
 * process loads only that of its model: onnx-session.ts or openvino-session.ts.
 */
import type { SessionSpec } from '../engine-protocol.ts';
import type { GraphInput, GraphValue } from './graph-ends.ts';

/** The settings of a graph's session. A probe does not know the names of its tensors yet. */
export type RuntimeSpec = Pick<
  SessionSpec,
  'provider' | 'openvino' | 'intraOpThreads' | 'sharesCores' | 'allowCpuNodes' | 'keepsNoMemory'
> &
  Partial<Pick<SessionSpec, 'inputName' | 'outputName' | 'inputWidth' | 'inputHeight' | 'form'>>;

/** The runtime knows this of a tensor before a run; without a shape it knows nothing. */
export interface TensorFacts {
  readonly name: string;
  readonly isTensor: boolean;
  readonly type?: string;
  /** A name where the maker left a size open. */
  readonly shape?: readonly (number | string)[];
}

export interface Session {
  readonly inputs: readonly TensorFacts[];
  readonly outputs: readonly TensorFacts[];
  /** Blocks the thread. Its values are good until the next run. */
  run(
    feeds: Readonly<Record<string, GraphInput>>,
    outputNames: readonly string[],
  ): Promise<Readonly<Record<string, GraphValue>>>;
}
