/**
 * Replaces engines, pictures and models of the real program, so that a test can hold an image or
 * the start, and let engines fail. Messages over the IPC channel:
 *
 *   { letGo: stage }      lets a held image continue (FAKE_HOLD lists stages)
 *   { start: true }       lets the start continue, if FAKE_HOLD lists `start`
 *   { failEngines: true } engines keep dying
 */
import type { ProviderChoice } from '../engine/choice/execution-provider.ts';
import type { EnginePool } from '../engine/pool/engine-pool.ts';
import type { Plan } from '../models/prepared-model.ts';
import type { PicturePool } from '../picture/pool/picture-pool.ts';
import {
  FakeEnginePool,
  FakePicturePool,
  type FakeStage,
  StageGates,
  TINY_MODEL,
} from './fake-pools.ts';

const gates = new StageGates();
const engines = new FakeEnginePool(gates);
const pictures = new FakePicturePool(gates);
const started = Promise.withResolvers<void>();
const held = (process.env.FAKE_HOLD ?? '').split(',');

for (const stage of held) {
  if (stage === 'start') continue;
  if (stage !== '') gates.hold(stage as FakeStage);
}
if (!held.includes('start')) started.resolve();

interface Order {
  readonly letGo?: FakeStage;
  readonly start?: boolean;
  readonly failEngines?: boolean;
}

process.on('message', (order: Order) => {
  if (order.letGo) gates.letGo(order.letGo);
  if (order.start) started.resolve();
  if (order.failEngines) {
    engines.set({ state: 'failed', failure: 'the engines keep dying', enginesReady: 0 });
  }
});

export async function selectExecutionProvider(
  requested: ProviderChoice['requested'],
): Promise<ProviderChoice> {
  await started.promise;
  return { requested, selected: 'cpu', fallbacks: [] };
}

export { ExecutionProviderError } from '../engine/choice/execution-provider.ts';
export * from '../models/plan.ts';
export * from '../prepared/load-prepared.ts';

export async function buildPlan(): Promise<Plan> {
  return { name: 'tiny', models: [{ model: TINY_MODEL, role: 'subject' }] };
}

export async function loadPlanOutlines(): Promise<readonly []> {
  return [];
}

export async function outlineOf() {
  return { name: 'tiny', entries: [] };
}

export function openEnginePool(): EnginePool {
  return engines;
}

export async function openPicturePool(): Promise<PicturePool> {
  return pictures;
}
