/** The file that engines cannot start without, moved aside and put back. */
import { execFileSync } from 'node:child_process';
import { existsSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { NODE_CLI } from '../../bin/stack.ts';
import { RUNTIME_FOLDER_VARIABLE } from '../../inference-node/src/engine/engine-protocol.ts';
import { packageFolder } from '../../inference-node/src/providers/provider-files.ts';
import type { Card } from './card.ts';

const ASIDE = '.taken-away';

/**
 * The provider's own library; where the provider is a part of the runtime, the model's prepared
 * graph, which a node that starts anew makes again.
 * @param model a model's name, or a plan's.
 */
export function fileOfEngines(card: Card, model: string): string {
  const { provider } = card.options;
  if (provider === 'cuda' || provider === 'tensorrt') {
    const folder = card.engineEnv({ precision: 'fp16' })[RUNTIME_FOLDER_VARIABLE];
    return path.join(folder ?? packageFolder(), `libonnxruntime_providers_${provider}.so`);
  }
  const env = { ...process.env, MATTING_MODEL: model, MATTING_MODEL_DIR: card.modelDir };
  const listed = execFileSync(process.execPath, [NODE_CLI, 'models', 'fetch', '--json'], { env });
  const { models } = JSON.parse(listed.toString()) as { models: { prepared: { path: string } }[] };
  const [first] = models;
  if (first === undefined) throw new Error(`${model} has no prepared graph`);
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
