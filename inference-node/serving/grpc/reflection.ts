/**
 * Server reflection of what the node's port speaks, so that grpcurl and the like need no .proto
 * file. Around @grpc/reflection 1.0, which leaves three things open:
 *
 * - proto-loader names the entry of a map after its field alone (`Statuses`); readers that check
 *   (protobuf-go, so grpcurl) refuse the whole file unless it is what protoc says,
 *   `StatusesEntry`. Health's `List` has a map, and so no call of Health could be made by
 *   reflection.
 * - It gives fields no JSON name: clients that write JSON know `content_length` or `contentLength`
 *   alone, and should know both.
 * - It answers as fast as it is asked. An answer is a hundred times its question, so a client that
 *   asks and reads nothing would fill the memory of the node (measured: 170 MB in 10 s).
 */
import { fromBinary, toBinary } from '@bufbuild/protobuf';
import { type DescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt';
import type { Server, ServerDuplexStream } from '@grpc/grpc-js';
import type { PackageDefinition } from '@grpc/proto-loader';
import { ReflectionService } from '@grpc/reflection';

type Handler = (call: ServerDuplexStream<unknown, unknown>) => void;

const REFLECTION_PATHS_PREFIX = '/grpc.reflection.';

export function isReflectionPath(path: string): boolean {
  return path.startsWith(REFLECTION_PATHS_PREFIX);
}

/** @param definition loaded with `keepCase`, or its fields have other names than the .proto's. */
export function addReflection(server: Server, definition: PackageDefinition): void {
  const service = new ReflectionService(describeAsProtoc(definition));
  const addService: Server['addService'] = (serviceDefinition, { ServerReflectionInfo: answer }) =>
    server.addService(serviceDefinition, {
      ServerReflectionInfo: atReadersPace(answer as unknown as Handler),
    });
  service.addToServer({ addService });
}

/** The next question is taken once the answers before it are on their way. */
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
      // A service has none; a method of that name would stand there.
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

/** `key_value` gives `keyValue`. */
function camelCase(name: string): string {
  return name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
