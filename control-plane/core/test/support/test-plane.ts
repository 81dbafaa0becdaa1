/** A whole control plane in this process, as main.ts opens it. */
import { type Logger, pino } from 'pino';
import type { Environment } from '#program/env.ts';
import pkg from '../../../../package.json' with { type: 'json' };
import { loadConfig } from '../../config.ts';
import { type ControlPlane, openCore, type Timing } from '../../open-core.ts';
import type { Package } from '../../package.ts';

export interface TestPlaneOptions {
  readonly log?: Logger;
  readonly timing?: Partial<Timing>;
  /** None unless given. */
  readonly packages?: readonly Package[];
}

export function openTestPlane(
  env: Environment,
  replicaId: string,
  { log = pino({ level: 'silent' }), timing, packages = [] }: TestPlaneOptions = {},
): Promise<ControlPlane> {
  const about = { version: pkg.version, errorsPage: '# Errors\n' };
  return openCore(loadConfig(env, packages), { log, replicaId, about, timing });
}
