/** A whole control plane in this process, as main.ts opens it. */
import { type Logger, pino } from 'pino';
import type { Environment } from '#program/env.ts';
import pkg from '../../../../package.json' with { type: 'json' };
import { PACKAGES } from '../../../packages.ts';
import { loadConfig } from '../../config.ts';
import { type ControlPlane, openCore, type Timing } from '../../open-core.ts';

export function openTestPlane(
  env: Environment,
  replicaId: string,
  { log = pino({ level: 'silent' }), timing }: { log?: Logger; timing?: Partial<Timing> } = {},
): Promise<ControlPlane> {
  const about = { version: pkg.version, errorsPage: '# Errors\n' };
  return openCore(loadConfig(env, PACKAGES), { log, replicaId, about, timing });
}
