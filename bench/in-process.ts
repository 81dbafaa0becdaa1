/** The node's pipeline in this process, over real engines and picture workers, without gRPC. */
import { pino } from 'pino';
import { makePrepared } from '../inference-node/model-tools/preparing/prepare.ts';
import { enginesInMemory, readMemoryLimitBytes } from '../inference-node/serving/admission.ts';
import { createAnswering } from '../inference-node/serving/engine/choice/answer-picture.ts';
import {
  chooseEngineLayout,
  type EngineGoal,
  type EngineLayout,
  readCpuShare,
} from '../inference-node/serving/engine/choice/engine-layout.ts';
import { openEnginePool } from '../inference-node/serving/engine/pool/open-engine-pool.ts';
import { outlineOf, parseModelSettings } from '../inference-node/serving/models/plan.ts';
import type { PreparedModel } from '../inference-node/serving/models/prepared-model.ts';
import { openPicturePool } from '../inference-node/serving/picture/pool/open-picture-pool.ts';
import { Pipeline } from '../inference-node/serving/pipeline.ts';
import { drawCheckPicture } from '../inference-node/serving/prepared/answer-check.ts';
import {
  buildPlan,
  detectInstructionSet,
} from '../inference-node/serving/prepared/load-prepared.ts';
import type { OutputFormat } from '../proto/contract/formats.ts';
import { at } from '../test/support/at.ts';
import type { BenchPhoto } from './photos.ts';

export interface InProcess {
  readonly layout: EngineLayout;
  readonly description: string;
  /** One picture of the model's size through an engine and nothing else. */
  bare(): Promise<void>;
  /** Resolves with the bytes of the cut-out. */
  cutOut(photo: BenchPhoto, format: OutputFormat): Promise<number>;
  /** Memory of one engine that has worked, bytes. */
  engineMemory(): number;
  close(): Promise<void>;
}

export async function openInProcess(goal: EngineGoal): Promise<InProcess> {
  const childEnv = { PATH: process.env.PATH ?? '' };
  const log = pino({ level: 'silent' });
  const settings = parseModelSettings(process.env, process.cwd());
  const cpuShare = await readCpuShare();
  const threads = Math.max(1, Math.floor(cpuShare));
  const plan = await buildPlan({
    outline: await outlineOf(settings),
    cacheDir: settings.modelDir,
    precision: settings.precision,
    provider: 'cpu',
    instructionSet: await detectInstructionSet(),
    answering: createAnswering({ childEnv, threads }),
    make: makePrepared,
  });
  const models = plan.models.map(({ model }) => model);
  const model = at(models, 0);
  const layout = chooseEngineLayout({
    provider: 'cpu',
    precisions: models.map(({ precision }) => precision),
    cpuShare,
    goal,
    enginesMax: enginesInMemory(readMemoryLimitBytes(), models),
  });
  const runs = plan.models.map(({ model, role }) => ({
    model,
    role,
    engines: openEnginePool({ model, ...layout, childEnv, log }),
  }));
  const { engines } = at(runs, 0);
  const pictures = await openPicturePool({ workers: layout.engines + 2, childEnv, log });
  await Promise.all(runs.map(run => run.engines.ready()));
  const pipeline = new Pipeline(pictures);
  const { signal } = new AbortController();
  const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);
  return {
    layout,
    description: `${plan.name}: ${models.map(describe).join(' and ')}`,
    bare: async () => {
      await engines.run({ rgb, priority: 'sync', signal });
    },
    cutOut: async ({ file, width, height }, outputFormat) => {
      let bytes = 0;
      const order = {
        plan: { name: plan.name, runs },
        declared: { width, height },
        outputFormat,
        resultKind: 'cutout',
        priority: 'sync',
        refinement: true,
        foregroundEstimation: true,
      } as const;
      const exchange = {
        receive: async () => ({ image: file }),
        stageBegan: () => undefined,
        send: async (result: { readonly file: Buffer }) => {
          bytes = result.file.length;
        },
      };
      await pipeline.process(order, exchange, signal);
      return bytes;
    },
    engineMemory: () => engines.processes()[0]?.residentBytes ?? Number.NaN,
    close: async () => {
      await Promise.all([...runs.map(run => run.engines.close(0)), pictures.close(0)]);
    },
  };
}

function describe({ model, inputWidth, inputHeight, precision }: PreparedModel): string {
  return `${model} ${inputWidth}x${inputHeight} ${precision}`;
}
