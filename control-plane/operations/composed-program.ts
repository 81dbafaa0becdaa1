/** What the doctor and the support bundle are told of the program that was composed. */
import type { Environment } from '#program/env.ts';
import type { CliPackages } from '../core/cli/context.ts';
import type { CoreSettings } from '../core/settings.ts';
import type { StorageKind } from '../core/storage/blob-store.ts';

export interface LookedAtConfig extends CoreSettings {
  readonly warnings: readonly string[];
  /** Absent where nothing is sold. */
  readonly sales?: { readonly paymentSecret: string | undefined };
}

/** Reads every variable, as a start does. @throws ConfigError */
export type LoadConfig = (env: Environment, storageKinds: readonly StorageKind[]) => LookedAtConfig;

export interface ComposedProgram extends CliPackages {
  readonly loadConfig: LoadConfig;
}
