/** The node's pipeline in this process, over the pools that a node opens, without gRPC. */
import { pino } from 'pino';
import { loadConfig } from '../inference-node/config.ts';
import { makePrepared } from '../inference-node/model-tools/preparing/prepare.ts';
import { outlineOf } from '../inference-node/serving/models/plan.ts';
import type { PreparedModel } from '../inference-node/serving/models/prepared-model.ts';
import { type OpenedPool, openPools } from '../inference-node/serving/open-pools.ts';
import { drawCheckPicture } from '../inference-node/serving/prepared/answer-check.ts';
import type { OutputFormat } from '../proto/contract/formats.ts';
import { at } from '../test/support/at.ts';
import type { BenchPhoto } from './photos.ts';

export interface InProcess {
  /** Each model has so many. */
  readonly engines: number;
  readonly description: string;
  /** One picture of the model's size through an engine and nothing else. */
  bare(): Promise<void>;
  /** Resolves with the bytes of the cut-out. */
  cutOut(photo: BenchPhoto, format: OutputFormat): Promise<number>;
  /** Memory of one engine that has worked, bytes. */
  engineMemory(): number;
  close(): Promise<void>;
}

export async function openInProcess(): Promise<InProcess> {
  const config = loadConfig(process.env);
  const opened: OpenedPool[] = [];
  const { signal } = new AbortController();
  const { plan, pipeline } = await openPools({
    ...{ config, opened, make: makePrepared, ending: signal },
    log: pino({ level: 'silent' }),
    outline: await outlineOf(config.modelSettings),
    fail: error => {
      throw error;
    },
  });
  const { engines, model } = at(plan.runs, 0);
  await Promise.all(plan.runs.map(run => run.engines.ready()));
  const rgb = drawCheckPicture(model.inputWidth, model.inputHeight);
  return {
    engines: engines.snapshot().engines,
    description: `${plan.name}: ${plan.runs.map(run => describe(run.model)).join(' and ')}`,
    bare: async () => {
      await engines.run({ rgb, priority: 'sync', signal });
    },
    cutOut: async ({ file, width, height }, outputFormat) => {
      let bytes = 0;
      const order = {
        plan,
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
      await Promise.all(opened.map(({ pool }) => pool.close(0)));
    },
  };
}

function describe({ model, inputWidth, inputHeight, precision }: PreparedModel): string {
  return `${model} ${inputWidth}x${inputHeight} ${precision}`;
}
