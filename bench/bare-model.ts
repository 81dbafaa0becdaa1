/** The yardstick: `session.run` of the prepared model in this process, with an engine's settings. */
import { execFileSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { NODE_CLI } from '../bin/stack.ts';
import { InferenceSession, Tensor } from '../inference-node/serving/engine/child/onnx-runtime.ts';
import { at } from '../test/support/at.ts';

export interface BareModel {
  /** One run on the same input; milliseconds. */
  run(): Promise<number>;
  close(): Promise<void>;
}

interface Prepared {
  readonly path: string;
  readonly inputName: string;
  readonly outputName: string;
  readonly inputWidth: number;
  readonly inputHeight: number;
}

export async function openBareModel(): Promise<BareModel> {
  const listed = execFileSync(process.execPath, [NODE_CLI, 'models', 'fetch', '--json']);
  const { models } = JSON.parse(listed.toString()) as { models: { prepared: Prepared }[] };
  const { prepared } = at(models, 0);
  const session = await InferenceSession.create(prepared.path, {
    executionProviders: ['cpu'],
    intraOpNumThreads: availableParallelism(),
    interOpNumThreads: 1,
    enableMemPattern: false,
    graphOptimizationLevel: 'all',
    logSeverityLevel: 3,
  });
  const pixels = prepared.inputWidth * prepared.inputHeight;
  const values = Float32Array.from({ length: 3 * pixels }, (_, i) => ((i * 31) % 255) / 256 - 0.5);
  const shape = [1, 3, prepared.inputHeight, prepared.inputWidth];
  const input = new Tensor('float32', values, shape);
  return {
    run: async () => {
      const startedAt = performance.now();
      await session.run({ [prepared.inputName]: input }, [prepared.outputName]);
      return performance.now() - startedAt;
    },
    close: () => session.release(),
  };
}
