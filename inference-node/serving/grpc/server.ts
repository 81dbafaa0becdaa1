/** Opens before the models are loaded, so that probes see a node that starts. */

import { fileURLToPath } from 'node:url';
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { type DescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import {
  Server,
  type ServerCredentials,
  type ServerDuplexStream,
  type ServerOptions,
} from '@grpc/grpc-js';
import { loadSync, type PackageDefinition } from '@grpc/proto-loader';
import { ReflectionService } from '@grpc/reflection';
import {
  type GrpcGuard,
  type GuardCause,
  guardGrpcServer,
} from '@matting/program/ports/grpc-guard.ts';
import { bindGrpcServer, shutDownGrpcServer } from '@matting/program/ports/grpc-server.ts';
import {
  GUARD_BOUNDS,
  type GuardBounds,
  guardBoundsWithin,
} from '@matting/program/ports/guard-bounds.ts';
import { listening } from '@matting/program/ports/listening.ts';
import { MATTE } from '@matting/proto/contract/chunk-wire.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { toStatus } from '@matting/proto/contract/grpc-status.ts';
import { MESSAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  type GetNodeInfoResponse,
  type MatteServiceServer,
  MatteServiceService,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { HealthImplementation, protoPath as healthProtoPath } from 'grpc-health-check';
import type { NodeStatus } from '../node-state.ts';
import { type Callers, unknownCaller } from './callers.ts';
import type { MatteHandler } from './matte-handler.ts';
import type { CapacityWatchers } from './node-info.ts';

const PROTO_DIR = fileURLToPath(new URL('../../../proto/', import.meta.url));
const MATTE_SERVICE = 'matting.v1.MatteService';
/** Needs no token: probes have none, and it reveals only whether the node serves. */
const OPEN_PATHS_PREFIX = '/grpc.health.v1.Health/';
const OVERALL = '';

/** Far above admission. Above it HTTP/2 lets a call wait, but a refusal must come at once. */
const STREAMS_MAX = 256;

/**
 * Age at which the server asks a direct caller for a new connection, which finds new nodes behind a
 * name and sees replaced certificates. Calls under way continue.
 */
const CONNECTION_AGE_MAX_MS = 10 * 60_000;

const FILES_SHARE = 0.5;

/** Longer than the longest attempt (10 min), in which a call may be silent. */
const MATTE_SILENCE_MAX_MS = 15 * 60_000;
const REFLECTION_SILENCE_MAX_MS = 60_000;

/** Options without the `grpc.` prefix are silently ignored. */
const SERVER_OPTIONS: ServerOptions = {
  'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
  'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
  // Notices a caller whose machine vanished, and frees its permits, within 30 s.
  'grpc.keepalive_time_ms': 20_000,
  'grpc.keepalive_timeout_ms': 10_000,
  'grpc.enable_channelz': 0,
};

/** Within SERVERS_MAX_MS of drain.ts. */
const SHUTDOWN_TIMEOUT_MS = 4000;

interface NodeServerOptions {
  readonly host: string;
  readonly port: number;
  readonly callers: Callers;
  readonly credentials: ServerCredentials;
  readonly status: NodeStatus;
  readonly matte: MatteHandler;
  readonly watchers: CapacityWatchers;
  readonly info: () => GetNodeInfoResponse | undefined;
  readonly onEnded?: ((cause: GuardCause) => void) | undefined;
  readonly guardBounds?: Partial<GuardBounds> | undefined;
  readonly matteSilenceMaxMs?: number | undefined;
  readonly connectionAgeMaxMs?: number | undefined;
  readonly serverOptions?: ServerOptions | undefined;
}

export async function openNodeServer(options: NodeServerOptions) {
  const server = new Server({ ...SERVER_OPTIONS, ...options.serverOptions });
  const connections = guard(server, options);
  server.addService({ ...MatteServiceService, matte: MATTE }, matteService(options));
  const stopHealth = addHealth(server, options.status);
  addReflection(server, reflectedPackages());
  const { host, port: wantedPort } = options;
  const port = await listening({ variable: 'MATTING_NODE_PORT', host, port: wantedPort }, () =>
    bindGrpcServer(server, options),
  );
  return {
    port,
    connections,
    close: async () => {
      stopHealth();
      await shutDownGrpcServer(server, SHUTDOWN_TIMEOUT_MS);
    },
  };
}

function guard(server: Server, options: NodeServerOptions): GrpcGuard {
  const { callers, onEnded } = options;
  const bounds = { ...guardBoundsWithin(GUARD_BOUNDS, FILES_SHARE), ...options.guardBounds };
  const { matteSilenceMaxMs = MATTE_SILENCE_MAX_MS } = options;
  const isMatte = (path: string) => path === MATTE.path;
  return guardGrpcServer(server, {
    identify: (metadata, auth) => callers.identify(metadata, auth),
    unknown: unknownCaller(),
    streamsMax: STREAMS_MAX,
    isOpenPath: path => path.startsWith(OPEN_PATHS_PREFIX),
    isLargePath: isMatte,
    silenceMaxMsOf: path => {
      if (isMatte(path)) return matteSilenceMaxMs;
      return isReflectionPath(path) ? REFLECTION_SILENCE_MAX_MS : undefined;
    },
    askedAgeMs: options.connectionAgeMaxMs ?? CONNECTION_AGE_MAX_MS,
    onEnded,
    bounds,
  });
}

function matteService({ matte, watchers, info }: NodeServerOptions): MatteServiceServer {
  return {
    matte: matte.handle,
    watchCapacity: watchers.handle,
    getNodeInfo: (_call, callback) => {
      const answer = info();
      if (answer !== undefined) callback(null, answer);
      else callback(toStatus(new ContractError('NODE_UNAVAILABLE', 'The node is starting.')));
    },
  };
}

function addHealth(server: Server, status: NodeStatus): () => void {
  const health = new HealthImplementation();
  const follow = () => {
    const serving = status.state === 'serving' ? 'SERVING' : 'NOT_SERVING';
    for (const service of [OVERALL, MATTE_SERVICE]) health.setStatus(service, serving);
  };
  follow();
  health.addToServer(server);
  return status.onChange(follow);
}

function reflectedPackages() {
  const options = { includeDirs: [PROTO_DIR], keepCase: true };
  const matte = loadSync('matting/v1/matte_service.proto', options);
  return { ...matte, ...loadSync(healthProtoPath, options) };
}

/*
 * Server reflection, so that grpcurl needs no .proto file. @grpc/reflection 1.0 leaves three gaps:
 *
 * - proto-loader names a map's entry by its field alone (`Statuses`). Strict readers (protobuf-go)
 *   refuse the file unless it is `StatusesEntry`.
 * - Fields have no JSON name: clients should know `content_length` and `contentLength`.
 * - It answers as fast as it is asked, with a hundred times the bytes: a client that reads nothing
 *   would fill the memory (170 MB in 10 s).
 */

type Handler = (call: ServerDuplexStream<unknown, unknown>) => void;

const REFLECTION_PATHS_PREFIX = '/grpc.reflection.';

function isReflectionPath(path: string): boolean {
  return path.startsWith(REFLECTION_PATHS_PREFIX);
}

/** `definition` was loaded with `keepCase`. */
function addReflection(server: Server, definition: PackageDefinition): void {
  const service = new ReflectionService(describeAsProtoc(definition));
  const addService: Server['addService'] = (serviceDefinition, { ServerReflectionInfo: answer }) =>
    server.addService(serviceDefinition, {
      ServerReflectionInfo: atReadersPace(answer as unknown as Handler),
    });
  service.addToServer({ addService });
}

/** Takes the next request once the answers before it are on their way. */
function atReadersPace(answer: Handler): Handler {
  return call => {
    answer(call);
    call.on('data', () => {
      if (!call.writableNeedDrain) return;
      call.pause();
      call.once('drain', () => call.resume());
    });
  };
}

function describeAsProtoc(definition: PackageDefinition): PackageDefinition {
  return Object.fromEntries(
    Object.entries(definition).map(([name, part]) => {
      const files = part.fileDescriptorProtos;
      // A service has none, but may have a method of that name.
      if (!Array.isArray(files)) return [name, part];
      return [name, { ...part, fileDescriptorProtos: files.map(asProtoc) }];
    }),
  );
}

function asProtoc(bytes: Buffer): Buffer {
  const file = fromBinary(FileDescriptorProtoSchema, bytes);
  for (const message of file.messageType) nameAsProtoc(message);
  return Buffer.from(toBinary(FileDescriptorProtoSchema, file));
}

function nameAsProtoc(message: DescriptorProto): void {
  message.nestedType.forEach(nameAsProtoc);
  for (const field of message.field) {
    field.jsonName = camelCase(field.name);
    const entry = message.nestedType.find(({ name }) => name === field.typeName);
    if (entry?.options?.mapEntry !== true) continue;
    entry.name = `${camelCase(`_${field.name}`)}Entry`;
    field.typeName = entry.name;
  }
}

function camelCase(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
