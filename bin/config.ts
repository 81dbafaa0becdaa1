/**
 * What the supervisor takes from the environment. It reads little: the programs it starts check
 * their own variables; here is what it must know to give each of them its part of one machine.
 */
import path from 'node:path';
import { createEnvReader } from '#contract/env.ts';

export const ROOT = path.resolve(import.meta.dirname, '..');

export interface Ports {
  readonly http: number;
  readonly registry: number;
  readonly metrics: number;
  readonly node: number;
  readonly nodeHttp: number;
}

export interface SupervisorConfig {
  /** Where the REST API listens; everything else of the single machine stays on loopback. */
  readonly host: string;
  readonly ports: Ports;
  /** Absolute. */
  readonly dataDir: string;
  /** Absolute. */
  readonly modelDir: string;
  readonly nodeToken: string | undefined;
  /** The environment as given, handed on to the programs. */
  readonly env: Readonly<Record<string, string>>;
}

/** The variable that sets each port, for messages. */
export const PORT_VARIABLES: Readonly<Record<keyof Ports, string>> = {
  http: 'MATTING_PORT',
  registry: 'MATTING_REGISTRY_PORT',
  metrics: 'MATTING_METRICS_PORT',
  node: 'MATTING_NODE_PORT',
  nodeHttp: 'MATTING_NODE_HTTP_PORT',
};

/** @throws ConfigError naming every variable that is not usable. */
export function loadSupervisorConfig(env: NodeJS.ProcessEnv = process.env): SupervisorConfig {
  const reader = createEnvReader(env);
  const config: SupervisorConfig = {
    host: reader.string('MATTING_HOST', { default: '127.0.0.1' }),
    ports: {
      http: reader.port('MATTING_PORT', { default: 8080 }),
      registry: reader.port('MATTING_REGISTRY_PORT', { default: 50_050 }),
      metrics: reader.port('MATTING_METRICS_PORT', { default: 9464 }),
      node: reader.port('MATTING_NODE_PORT', { default: 50_051 }),
      nodeHttp: reader.port('MATTING_NODE_HTTP_PORT', { default: 50_052 }),
    },
    dataDir: path.resolve(reader.string('MATTING_DATA_DIR', { default: 'data' })),
    modelDir: path.resolve(reader.string('MATTING_MODEL_DIR', { default: 'model-cache' })),
    nodeToken: reader.string('MATTING_NODE_TOKEN', { default: undefined }),
    env: Object.fromEntries(
      Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined),
    ),
  };
  reader.requireValid();
  return config;
}
