/** What engines of a GPU need to be told to find an installed provider and its libraries. */
import { RUNTIME_FOLDER_VARIABLE } from '../engine/engine-protocol.ts';
import { type InstalledState, readInstalled } from './provider-files.ts';

/**
 * `childEnv`, with the folders of an installed provider. The operator's own LD_LIBRARY_PATH goes
 * before those that the installation recorded.
 */
export async function readEngineEnvironment(
  providerDir: string,
  childEnv: Readonly<Record<string, string>>,
): Promise<{ childEnv: Readonly<Record<string, string>>; installed: InstalledState }> {
  const installed = await readInstalled(providerDir, { hashed: false });
  if (installed.state !== 'installed') return { childEnv, installed };
  const { folder, record } = installed;
  const folders = [childEnv.LD_LIBRARY_PATH ?? '', ...record.libraryFolders].filter(Boolean);
  const search = folders.length === 0 ? {} : { LD_LIBRARY_PATH: folders.join(':') };
  return {
    childEnv: { ...childEnv, ...search, [RUNTIME_FOLDER_VARIABLE]: folder },
    installed,
  };
}
