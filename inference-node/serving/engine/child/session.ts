import type { SessionSpec } from '../engine-protocol.ts';
import type { GraphInput, GraphValue } from './graph-io.ts';

export type RuntimeSpec = Pick<
  SessionSpec,
  | 'provider'
  | 'openvino'
  | 'cInterface'
  | 'intraOpThreads'
  | 'sharesCores'
  | 'allowCpuNodes'
  | 'keepsNoMemory'
> &
  Partial<Pick<SessionSpec, 'inputName' | 'outputName' | 'inputWidth' | 'inputHeight' | 'form'>>;

export interface TensorFacts {
  readonly name: string;
  readonly isTensor: boolean;
  readonly type?: string;
  /** A name stands for a size that the maker left open. Undefined: the runtime does not know. */
  readonly shape?: readonly (number | string)[];
}

export interface Session {
  readonly inputs: readonly TensorFacts[];
  readonly outputs: readonly TensorFacts[];
  /** May block the thread. The values are valid until the next run. */
  run(
    feeds: Readonly<Record<string, GraphInput>>,
    outputNames: readonly string[],
  ): Promise<Readonly<Record<string, GraphValue>>>;
}
