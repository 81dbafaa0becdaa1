/** The file that engines cannot start without, moved aside and put back. */
import { execFileSync } from 'node:child_process';
import { existsSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { NODE_CLI } from '../../bin/stack.ts';
import { RUNTIME_FOLDER_VARIABLE } from '../../inference-node/src/engine/engine-protocol.ts';
import { packageFolder } from '../../inference-node/src/providers/provider-files.ts';
import type { Card } from './card.ts';
import { planVariables } from './started-service.ts';

const ASIDE = '.taken-away';

/**
 * The provider's own library; where the provider is a part of the runtime, the model's prepared
 * graph, which a node that starts anew makes again; undefined where no command names that.
 * @param plan a plan's name, or a model's.
 */
export async function fileOfEngines(card: Card, plan: string): Promise<string | undefined> {
  const { provider } = card.options;
  if (provider === 'cuda' || provider === 'tensorrt') {
    const folder = card.engineEnv({ precision: 'fp16' })[RUNTIME_FOLDER_VARIABLE];
    return path.join(folder ?? packageFolder(), `libonnxruntime_providers_${provider}.so`);
  }
  if (provider !== 'cpu') return undefined;
  const named = await planVariables(plan);
  const env = { ...process.env, ...named, MATTING_MODEL_DIR: card.modelDir };
  const listed = execFileSync(process.execPath, [NODE_CLI, 'models', 'fetch', '--json'], { env });
  const { models } = JSON.parse(listed.toString()) as { models: { prepared: { path: string } }[] };
  const [first] = models;
  if (first === undefined) throw new Error(`${plan} has no prepared graph`);
  return first.prepared.path;
}

export function takeAway(file: string): void {
  renameSync(file, `${file}${ASIDE}`);
}

/** Also what an earlier program that was killed left aside. Nothing where it is there. */
export function putBack(file: string): void {
  const aside = `${file}${ASIDE}`;
  if (!existsSync(aside)) return;
  if (existsSync(file)) rmSync(aside);
  else renameSync(aside, file);
}
