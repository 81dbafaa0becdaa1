import type { Environment } from '@matting/program/env.ts';
import { VERSION } from '@matting/program/version.ts';
import { type Logger, pino } from 'pino';
import { loadConfig } from '../../config.ts';
import { type ControlPlane, openCore } from '../../open-core.ts';
import type { Timing } from '../../open-resources.ts';
import type { Package } from '../../package.ts';

export interface TestPlaneOptions {
  readonly log?: Logger;
  readonly timing?: Partial<Timing>;
  readonly packages?: readonly Package[];
}

export function openTestPlane(
  env: Environment,
  replicaId: string,
  { log = pino({ level: 'silent' }), timing, packages = [] }: TestPlaneOptions = {},
): Promise<ControlPlane> {
  const about = { version: VERSION, errorsPage: '# Errors\n' };
  return openCore(loadConfig(env, packages), { log, replicaId, about, timing });
}
