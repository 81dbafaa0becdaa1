/** What engines are told, with TEST_ENGINE_ENV, an object in JSON: the `childEnv` of gpu-host.ts. */
import * as real from '../providers/provider-files.ts';

export * from '../providers/provider-files.ts';

const more: Record<string, string> = JSON.parse(process.env.TEST_ENGINE_ENV ?? '{}');

export async function readEngineEnvironment(
  providerDir: string,
  childEnv: Readonly<Record<string, string>>,
) {
  const found = await real.readEngineEnvironment(providerDir, childEnv);
  return { ...found, childEnv: { ...found.childEnv, ...more } };
}
