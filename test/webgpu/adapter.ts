/** The adapter of WebGPU that this machine has: a GPU's, or Mesa's, which computes on the CPU. */
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import { selectExecutionProvider } from '../../inference-node/src/engine/choice/execution-provider.ts';

const CACHE = process.env.XDG_CACHE_HOME || path.join(homedir(), '.cache');
/** Where test/support/webgpu/fetch-mesa.sh puts it. */
const FETCHED = path.join(CACHE, 'matting-test-tools/mesa');
const ICD_FILE = 'lvp_icd.json';

/** What engines need to find it; nothing for one that is installed. */
export function adapterEnv(): Record<string, string> {
  const icd = path.join(FETCHED, ICD_FILE);
  if (!existsSync(icd)) return {};
  return { LD_LIBRARY_PATH: FETCHED, VK_DRIVER_FILES: icd };
}

/** False: WebGPU runs here. With MATTING_TEST_REQUIRE_WEBGPU the tests fail where it does not. */
export async function skipWithoutAdapter(): Promise<string | false> {
  if (process.env.MATTING_TEST_REQUIRE_WEBGPU) return false;
  try {
    await selectExecutionProvider('webgpu', { childEnv: adapterEnv() });
    return false;
  } catch (error) {
    return (error as Error).message;
  }
}
