import type { EnvReader } from '@matting/program/env.ts';
import { hostLabel } from '@matting/program/host-label.ts';
import { type LogSettings, readLogSettings } from '@matting/program/log.ts';
import { isLoopback } from '@matting/program/ports/addresses.ts';
import { readHost, readPort } from '@matting/program/shared-settings.ts';
import { readTlsSettings, type TlsSettings } from '@matting/program/tls/tls-settings.ts';
import { hasNodeToken, type Listed, readNodeTokens, TOKEN_FORM } from '@matting/program/tokens.ts';
import {
  readTracingSettings,
  type TracingSettings,
} from '@matting/program/tracing/tracing-settings.ts';
import { readCallerTokens } from './grpc/caller-tokens.ts';
import type { CallerToken } from './grpc/callers.ts';
import { type ModelSettings, readModelSettings } from './models/model-settings.ts';
import type { CpuRuntimeChoice, ExecutionProvider } from './models/prepared-model.ts';
import {
  type Environment,
  type PoolSettings,
  readChildEnv,
  readCpuRuntime,
  readExecutionProvider,
  readPoolSettings,
  readProviderDir,
} from './start/pool-settings.ts';

export interface NodeSettings extends LogSettings, PoolSettings {
  readonly host: string;
  readonly port: number;
  /** host:port as control planes reach it. Undefined: host and the bound port. */
  readonly advertiseAddress: string | undefined;
  readonly httpPort: number;
  readonly nodeId: string;
  /** Tokens of the fleet: the node sends the first, accepts all. Empty only without a registry. */
  readonly nodeTokens: Listed<string>;
  /** Tokens of direct callers. Without any token every caller is trusted. */
  readonly callerTokens: Listed<CallerToken>;
  readonly tls: TlsSettings;
  /** host:port of control planes. Empty: the node serves direct callers alone. */
  readonly registryAddresses: readonly string[];
  readonly traces: TracingSettings | undefined;
}

/** Control planes accept no other node_id. */
const NODE_ID = /^[A-Za-z0-9._-]{1,64}$/;
/** Leaves room for a port of five digits. */
const HOST_LENGTH_MAX = 58;
const ADDRESS_FORM = 'host:port';
const REGISTRIES_MAX = 16;

export function readNodeSettings(reader: EnvReader, env: Environment, cwd: string): NodeSettings {
  const host = readHost(reader);
  const addresses = reader.section('Addresses');
  const port = readPort(addresses, 'node');
  const modelSettings = readModelSettings(reader, cwd);
  const settings: NodeSettings = {
    host,
    port,
    httpPort: readPort(addresses, 'nodeHttp'),
    nodeId: addresses.string('MATTING_NODE_ID', {
      about: 'The name of the node. It stays the same over restarts, and no other node has it.',
      otherwise: 'the host’s name and the port',
      pattern: NODE_ID,
      expected: '1 to 64 characters of A-Z, a-z, 0-9, ".", "_", "-"',
      default: defaultNodeId(port),
    }),
    ...readLogSettings(reader),
    traces: readTracingSettings(reader),
    ...readFleet(reader, host),
    ...readPoolSettings(reader, { env, modelSettings, cwd }),
  };
  if (settings.port !== 0 && settings.port === settings.httpPort) {
    reader.problem('MATTING_NODE_HTTP_PORT', 'another port than MATTING_NODE_PORT');
  }
  return settings;
}

export interface ToolSettings {
  readonly settings: ModelSettings;
  readonly providerDir: string;
  readonly executionProvider: ExecutionProvider | 'auto';
  readonly cpuRuntime: CpuRuntimeChoice;
  readonly childEnv: Readonly<Record<string, string>>;
}

export function readToolSettings(reader: EnvReader, env: Environment, cwd: string): ToolSettings {
  const settings = readModelSettings(reader, cwd);
  const providerDir = readProviderDir(reader, settings, cwd);
  const executionProvider = readExecutionProvider(reader);
  const cpuRuntime = readCpuRuntime(reader);
  return { settings, providerDir, executionProvider, cpuRuntime, childEnv: readChildEnv(env) };
}

function readFleet(whole: EnvReader, host: string) {
  const reader = whole.section('Addresses');
  const registryAddresses = reader.list('MATTING_REGISTRY_ADDRESS', ADDRESS_FORM, parseAddress, {
    about: 'The control planes. The node tries them in turn.',
    required: 'unless callers use the node directly',
    itemsMax: REGISTRIES_MAX,
    default: [],
  });
  const advertiseAddress = reader.parsed(
    'MATTING_NODE_ADVERTISE_ADDRESS',
    `${ADDRESS_FORM} where control planes reach this node`,
    parseAddress,
    {
      about: 'The address at which control planes reach the node.',
      required: 'with `MATTING_REGISTRY_ADDRESS` if `MATTING_HOST` is `0.0.0.0` or `::`',
      otherwise: 'the host and the port',
      default: undefined,
    },
  );
  const nodeTokens = readNodeTokens(whole);
  const callerTokens = readCallerTokens(whole.section('Direct callers'), nodeTokens);
  const tls = readTlsSettings(whole);
  if (!hasNodeToken(reader)) {
    const named = callerTokens.items.length > 0 || callerTokens.file !== undefined;
    const closed = named || tls.clientCaFile !== undefined;
    if (registryAddresses.length > 0) {
      reader.problem('MATTING_NODE_TOKEN', `set as on the control planes: ${TOKEN_FORM}`);
    } else if (!isLoopback(host) && !closed) {
      reader.problem('MATTING_NODE_TOKEN', `set where MATTING_HOST is not loopback: ${TOKEN_FORM}`);
    }
  }
  if (registryAddresses.length > 0 && isEveryInterface(host)) {
    if (!reader.has('MATTING_NODE_ADVERTISE_ADDRESS')) {
      reader.problem(
        'MATTING_NODE_ADVERTISE_ADDRESS',
        `set where MATTING_HOST is every interface: ${ADDRESS_FORM}`,
      );
    }
  }
  return {
    ...{ registryAddresses, advertiseAddress, nodeTokens, callerTokens },
    tls,
  };
}

function defaultNodeId(port: number): string {
  return `${hostLabel(HOST_LENGTH_MAX)}-${port}`;
}

/** host:port or [IPv6]:port. The port is not 0. */
function parseAddress(text: string): string | undefined {
  const match = /^(?:[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):(\d{1,5})$/.exec(text);
  if (match === null) return undefined;
  const port = Number(match[1]);
  return port >= 1 && port <= 65_535 ? text : undefined;
}

function isEveryInterface(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}
