/** The service on the provider that is measured, and loads on it. */
import { loadPlanOutlines } from '../../inference-node/src/models/plan.ts';
import { openService, type Service } from '../service.ts';
import type { Card } from './card.ts';
import type { LoadTarget } from './load.ts';
import { readCounts, readPage } from './node-metrics.ts';

export interface StartedService extends Service {
  readonly startS: number;
  readonly targets: Readonly<Record<LoadTarget['kind'], LoadTarget>>;
  /** Images that the node admits at once. */
  readonly imagesMax: number;
  /** As many as keep it full: a node refuses more, a control plane keeps some waiting. */
  callersOf(kind: LoadTarget['kind']): number;
  /** As /info says it. */
  info(): Promise<NodeInfo>;
}

export interface NodeInfo {
  readonly state: string;
  readonly device: string;
  readonly plan: string;
  readonly engines: number;
  readonly pictureWorkers: number;
  readonly executionProviderSelected: string;
  readonly models: readonly { readonly model: string; readonly precision: string }[];
  readonly gpus?: readonly { readonly up: boolean; readonly outReason: string }[];
}

/** Files of minutes under load would fill a disk. */
const RESULT_TTL_MS = 60_000;

/** What makes a node run a plan, or a model alone. */
export async function planVariables(name: string): Promise<Readonly<Record<string, string>>> {
  const plans = (await loadPlanOutlines()).map(plan => plan.name);
  return plans.includes(name) ? { MATTING_QUALITY: name } : { MATTING_MODEL: name };
}

/** @param plan a plan's name, or a model's. */
export async function startService(
  card: Card,
  plan: string,
  signal: AbortSignal,
  env: Readonly<Record<string, string>> = {},
): Promise<StartedService> {
  const { gpu } = card;
  const startedMs = performance.now();
  const wanted = {
    // Others on the host would make it faster than what `bare` measures.
    ...(gpu !== undefined && { MATTING_GPU_DEVICES: gpu.id }),
    ...{ MATTING_EXECUTION_PROVIDER: card.options.provider, MATTING_MODEL_DIR: card.modelDir },
    ...{ MATTING_RESULT_TTL_MS: String(RESULT_TTL_MS), ...(await planVariables(plan)) },
    ...env,
  };
  const service = await openService(wanted, signal);
  const startS = (performance.now() - startedMs) / 1000;
  const { imagesMax } = await readCounts(service.nodeHttpUrl);
  const { nodeAddress: address, nodeToken: token, baseUrl: origin, apiKey } = service;
  return {
    ...service,
    ...{ startS, imagesMax },
    targets: { rest: { kind: 'rest', origin, apiKey }, grpc: { kind: 'grpc', address, token } },
    callersOf: kind =>
      kind === 'grpc' ? imagesMax : imagesMax + Math.max(2, Math.ceil(imagesMax / 4)),
    info: async () => JSON.parse(await readPage(`${service.nodeHttpUrl}/info`)) as NodeInfo,
  };
}

/** What ran, in words. */
export async function describeNode(service: StartedService): Promise<string> {
  const info = await service.info();
  const models = info.models.map(({ model, precision }) => `${model} in ${precision}`);
  return [
    `${models.join(' and ')} on ${info.executionProviderSelected} (${info.device})`,
    `${info.engines} engines, ${info.pictureWorkers} picture workers`,
    `${service.imagesMax} images at once, started in ${service.startS.toFixed(1)} s`,
  ].join(', ');
}
