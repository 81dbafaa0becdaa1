import { execFile } from 'node:child_process';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { commandLine, type SupervisorConfig } from './config.ts';

const ANSWER_MAX_MS = 5000;
const COMMAND = 'nvidia-smi';

type HostConfig = Pick<SupervisorConfig, 'env' | 'modelDir'>;

/** The settings name a GPU, or are `auto` with an installed provider. */
export async function mayUseGpu(config: HostConfig): Promise<boolean> {
  const { MATTING_EXECUTION_PROVIDER: provider } = config.env;
  return isAuto(provider) ? await isInstalled(config) : provider !== 'cpu';
}

function isAuto(provider: string | undefined): boolean {
  return provider === undefined || provider === 'auto' || provider === '';
}

async function isInstalled({ env, modelDir }: HostConfig): Promise<boolean> {
  const providerDir = env.MATTING_PROVIDER_DIR || path.join(modelDir, 'providers');
  return (await readdir(providerDir).catch(() => [])).length > 0;
}

/** undefined: no GPU, CUDA is installed, or the operator chose another provider. */
export async function gpuHint(config: SupervisorConfig): Promise<string | undefined> {
  const { env } = config;
  if (!isAuto(env.MATTING_EXECUTION_PROVIDER) || (await isInstalled(config))) return undefined;
  const gpu = await firstGpu(env);
  if (gpu === undefined) return undefined;
  const install = commandLine(config, 'providers install cuda');
  const state = `this machine has a GPU (${gpu}), but the service uses the CPU`;
  return `${state}; run ${install}, then start again (docs/gpu.md)`;
}

/** Does not wait for a process that ignores SIGKILL. */
function firstGpu(env: Readonly<Record<string, string>>): Promise<string | undefined> {
  return new Promise(resolve => {
    const args = ['--query-gpu=name', '--format=csv,noheader'];
    const options = { env: { PATH: env.PATH ?? '' }, timeout: ANSWER_MAX_MS } as const;
    const child = execFile(
      COMMAND,
      args,
      { ...options, killSignal: 'SIGKILL' },
      (error, stdout) => {
        clearTimeout(timer);
        resolve(error === null ? stdout.split('\n')[0]?.trim() || undefined : undefined);
      },
    );
    const timer = setTimeout(() => {
      child.unref();
      resolve(undefined);
    }, ANSWER_MAX_MS + 1000);
  });
}
