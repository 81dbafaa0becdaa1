/** What engines would run on: the provider and the GPUs that a start would take, each tried as it does. */
import pino from 'pino';
import { type Finding, failure, ok, warning } from '#program/doctor/findings.ts';
import type { Config } from '../config.ts';
import { ExecutionProviderError, PROBE_TIMEOUT_MS } from '../engine/choice/execution-provider.ts';
import { LISTING_MAX_MS, listGpus } from '../engine/devices/nvidia-smi.ts';
import type { ExecutionProvider } from '../models/prepared-model.ts';
import { readEngineEnvironment } from '../providers/engine-environment.ts';
import { chooseProvider } from '../start/gpus.ts';

/** Each GPU is tried twice: by itself, and beside the CPU; twice that for a driver that is slow. */
const GPU_MS_MAX = 4 * PROBE_TIMEOUT_MS;

type ProviderConfig = Pick<Config, 'executionProvider' | 'gpuDevices' | 'providerDir' | 'childEnv'>;

/** GPUs are tried one after the other. */
export async function providerMsMax(config: ProviderConfig): Promise<number> {
  const listing = usesGpus(config) ? await listGpus(config.childEnv) : undefined;
  const gpus = listing?.state === 'listed' ? listing.gpus.length : 0;
  return 2 * LISTING_MAX_MS + Math.max(1, gpus) * GPU_MS_MAX;
}

export async function providerFindings(
  config: ProviderConfig,
): Promise<{ provider: ExecutionProvider | undefined; findings: Finding[] }> {
  try {
    const { childEnv } = await readEngineEnvironment(config.providerDir, config.childEnv);
    const chosen = await chooseProvider(config, childEnv, pino({ level: 'silent' }));
    const { requested, selected: provider, fallbacks } = chosen.provider;
    const up = chosen.devices.filter(({ outReason }) => outReason === undefined);
    const on = up.length === 0 ? '' : ` on ${up.map(({ facts }) => facts.id).join(', ')}`;
    const not = fallbacks.map(({ provider: tried, reason }) => `${tried}: ${reason}`);
    const more = not.length === 0 ? '' : `; not ${not.join('; ')}`;
    const found = `${provider} runs here${on} (asked for: ${requested})${more}`;
    const findings = [ok('provider', found)];
    for (const { facts, outReason } of chosen.devices) {
      if (outReason === undefined) continue;
      const advice = 'a node goes on without it: see the driver, or MATTING_GPU_DEVICES';
      findings.push(warning('GPU', `${facts.id}, ${facts.name}: ${outReason}`, advice));
    }
    if (chosen.unlisted !== undefined) {
      const advice = 'see what nvidia-smi says here: GPUs that it does not list are not used';
      findings.push(warning('GPU', `not all can be listed: ${chosen.unlisted}`, advice));
    }
    return { provider, findings };
  } catch (error) {
    if (!(error instanceof ExecutionProviderError)) throw error;
    const advice = 'the node does not start so: mend it, or set MATTING_EXECUTION_PROVIDER';
    return { provider: undefined, findings: [failure('provider', error.message, advice)] };
  }
}

function usesGpus({ executionProvider }: ProviderConfig): boolean {
  return executionProvider !== 'cpu' && executionProvider !== 'webgpu';
}
