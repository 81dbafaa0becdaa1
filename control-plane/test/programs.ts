import path from 'node:path';
import { cliWith } from '@matting/core/test/support/cli.ts';
import {
  Replicas as CoreReplicas,
  type ReplicasOptions,
} from '@matting/core/test/support/replicas.ts';
import {
  openTestPlane as openCorePlane,
  type TestPlaneOptions,
} from '@matting/core/test/support/test-plane.ts';
import type { Environment } from '@matting/program/env.ts';
import { type Env, Program } from '@matting/test-support/program.ts';
import { PACKAGES } from '../packages.ts';

export const runCli = cliWith(PACKAGES);

export function openTestPlane(env: Environment, replicaId: string, options: TestPlaneOptions = {}) {
  return openCorePlane(env, replicaId, { packages: PACKAGES, ...options });
}

export type Replicas = CoreReplicas;

export const Replicas = {
  open: (
    dialect: Parameters<typeof CoreReplicas.open>[0],
    options: ReplicasOptions = {},
  ): Promise<Replicas> => CoreReplicas.open(dialect, { packages: PACKAGES, ...options }),

  use: (...[test, dialect, options]: Parameters<typeof CoreReplicas.use>): Replicas =>
    CoreReplicas.use(test, dialect, () => ({
      packages: PACKAGES,
      ...(typeof options === 'function' ? options() : options),
    })),
};

export interface Ports {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
}

const REPLICA_PROCESS = path.join(import.meta.dirname, 'replica-process.ts');

export class ReplicaChild extends Program {
  ports!: Ports;

  static async start(
    env: Env,
    { name = 'replica', leaseMs = 3000, renewMs = 300, nodeArgs = [] as string[] } = {},
  ): Promise<ReplicaChild> {
    const args = [...nodeArgs, REPLICA_PROCESS, name, String(leaseMs), String(renewMs)];
    const child = new ReplicaChild(name, args, env);
    child.start();
    child.ports = JSON.parse(await child.firstLine());
    return child;
  }
}
