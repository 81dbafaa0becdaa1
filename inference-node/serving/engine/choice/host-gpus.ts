import { type GpuListing, listGpus } from '../devices/list-gpus.ts';
import { selectExecutionProvider } from './execution-provider.ts';

type Environment = Readonly<Record<string, string>>;

export type { GpuListing };

interface GpuAttempt {
  readonly device: string;
  readonly reason: string | undefined;
}

export async function findGpus(childEnv: Environment) {
  const gpus = await listGpus(childEnv);
  return { gpus, tryCuda: (engineEnv: Environment) => tryCuda(gpus, engineEnv) };
}

/** Tries every listed GPU, or CUDA's first device if there is no list. */
async function tryCuda(gpus: GpuListing, childEnv: Environment): Promise<readonly GpuAttempt[]> {
  const named =
    gpus.state === 'listed'
      ? gpus.gpus.map(({ id }) => ({ device: id, env: { ...childEnv, CUDA_VISIBLE_DEVICES: id } }))
      : [];
  const first = [{ device: 'the first device', env: childEnv }];
  const attempts: GpuAttempt[] = [];
  for (const { device, env } of named.length > 0 ? named : first) {
    const run = selectExecutionProvider('cuda', { childEnv: env });
    const reason = await run.then(
      () => undefined,
      (error: Error) => error.message,
    );
    attempts.push({ device, reason });
  }
  return attempts;
}
