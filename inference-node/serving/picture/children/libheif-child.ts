/**
 * Decodes the tiles of a file in descriptor 3 to samples in descriptor 4. It imports nothing of
 * this project, since it may read only itself and the module.
 */
import { fstatSync, readSync, writeSync } from 'node:fs';
import { createRequire } from 'node:module';

const INPUT_FD = 3;
const OUTPUT_FD = 4;

export interface PlaneOrder {
  readonly width: number;
  readonly height: number;
  readonly columns: number;
  readonly tileWidth: number;
  readonly tileHeight: number;
  /** Item of the first tile. The other tiles have the next numbers. */
  readonly firstId: number;
  readonly bits: number;
}

export interface DecodeOrder {
  readonly module: string;
  /** Written as RGBA. Undefined: only the version is wanted. */
  readonly colours?: PlaneOrder;
  /** Written after the colours, as one channel. */
  readonly alpha?: PlaneOrder | undefined;
  /** 16 bits, little endian, instead of 8. */
  readonly isDeep?: boolean;
}

type Names = Readonly<Record<string, unknown>>;

interface Channel {
  readonly id: unknown;
  readonly stride: number;
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

interface Decoded {
  readonly code?: unknown;
  readonly message?: string;
  readonly image?: unknown;
  readonly channels?: readonly Channel[];
}

interface Libheif {
  readonly heif_error_code: Names;
  readonly heif_colorspace: Names;
  readonly heif_chroma: Names;
  readonly heif_channel: Names;
  heif_get_version(): string;
  heif_context_alloc(): unknown;
  heif_context_read_from_memory(context: unknown, file: Uint8Array): Decoded;
  heif_js_context_get_image_handle(context: unknown, id: number): Decoded;
  heif_js_decode_image2(handle: unknown, colorspace: unknown, chroma: unknown): Decoded;
  heif_image_handle_release(handle: unknown): void;
  heif_image_release(image: unknown): void;
}

type Samples = Uint8Array | Uint16Array;

interface Form {
  readonly colorspace: unknown;
  readonly chroma: unknown;
  readonly channel: unknown;
  readonly channels: 1 | 4;
}

function main(): void {
  const {
    module,
    colours,
    alpha,
    isDeep = false,
  } = JSON.parse(process.argv.at(-1) ?? '') as DecodeOrder;
  const libheif = createRequire(module)(module) as Libheif;
  if (colours === undefined) {
    writeWhole(Buffer.from(libheif.heif_get_version()));
    return;
  }
  const context = libheif.heif_context_alloc();
  const read = libheif.heif_context_read_from_memory(context, readInput());
  if (read.code !== libheif.heif_error_code.heif_error_Ok) throw new Error(read.message);
  const { heif_colorspace: spaces, heif_chroma: chromas, heif_channel: channels } = libheif;
  const decodePlane = (plane: PlaneOrder, form: Form) => {
    writePlane(plane, form.channels, isDeep, id => decodeTile(libheif, context, id, form));
  };
  decodePlane(colours, {
    colorspace: spaces.heif_colorspace_RGB,
    chroma: isDeep
      ? chromas.heif_chroma_interleaved_RRGGBBAA_LE
      : chromas.heif_chroma_interleaved_RGBA,
    channel: channels.heif_channel_interleaved,
    channels: 4,
  });
  // Alpha is the coded luma.
  if (alpha === undefined) return;
  const colorspace = spaces.heif_colorspace_undefined;
  const chroma = chromas.heif_chroma_undefined;
  decodePlane(alpha, { colorspace, chroma, channel: channels.heif_channel_Y, channels: 1 });
}

interface Tile extends Channel {
  free(): void;
}

function decodeTile(libheif: Libheif, context: unknown, id: number, form: Form): Tile {
  const handle = libheif.heif_js_context_get_image_handle(context, id);
  if (handle.code !== undefined) throw new Error(`item ${id}: ${handle.message}`);
  const decoded = libheif.heif_js_decode_image2(handle, form.colorspace, form.chroma);
  const channel = decoded.channels?.find(one => one.id === form.channel);
  if (channel === undefined) throw new Error(`item ${id}: ${decoded.message}`);
  const free = () => {
    libheif.heif_image_release(decoded.image);
    libheif.heif_image_handle_release(handle);
  };
  return { ...channel, free };
}

/** Rows of a piece, if the picture is a single tile. */
const PIECE_ROWS = 64;

function writePlane(
  { width, height, columns, tileWidth, tileHeight, firstId, bits }: PlaneOrder,
  channels: 1 | 4,
  isDeep: boolean,
  decode: (id: number) => Tile,
): void {
  const scaled = tabulate(bits, isDeep ? 65_535 : 255);
  const rowLength = width * channels;
  for (let top = 0, id = firstId; top < height; top += tileHeight, id += columns) {
    const bottom = Math.min(top + tileHeight, height);
    const pieceRows = columns === 1 ? PIECE_ROWS : tileHeight;
    let tile: Tile | undefined;
    for (let from = top; from < bottom; from += pieceRows) {
      const rows = Math.min(pieceRows, bottom - from);
      const piece = new (isDeep ? Uint16Array : Uint8Array)(rowLength * rows);
      for (let column = 0; column < columns; column++) {
        const left = column * tileWidth;
        if (from === top) tile = requireTile(decode(id + column), tileWidth, tileHeight);
        const count = Math.min(tileWidth, width - left) * channels;
        for (let y = 0; y < rows && tile !== undefined; y++) {
          const at = y * rowLength + left * channels;
          const row = tile.data.subarray((from - top + y) * tile.stride);
          copySamples(row, piece.subarray(at, at + count), bits, scaled);
        }
        if (from + pieceRows >= bottom) tile?.free();
      }
      writeWhole(Buffer.from(piece.buffer));
    }
  }
}

function requireTile(tile: Tile, width: number, height: number): Tile {
  if (tile.width === width && tile.height === height) return tile;
  throw new Error(`a tile is ${tile.width}x${tile.height}`);
}

function tabulate(bits: number, max: number): Uint16Array {
  const valueMax = 2 ** bits - 1;
  return Uint16Array.from({ length: valueMax + 1 }, (_, value) =>
    Math.round((value * max) / valueMax),
  );
}

/** Deep samples are little-endian words. */
function copySamples(from: Uint8Array, into: Samples, bits: number, scaled: Uint16Array): void {
  if (bits === 8 && into instanceof Uint8Array) {
    into.set(from.subarray(0, into.length));
    return;
  }
  for (let i = 0; i < into.length; i++) {
    const value = bits === 8 ? from[i] : (from[2 * i] ?? 0) | ((from[2 * i + 1] ?? 0) << 8);
    into[i] = scaled[value ?? 0] ?? 0;
  }
}

function readInput(): Buffer {
  const file = Buffer.alloc(fstatSync(INPUT_FD).size);
  for (let at = 0; at < file.length; ) {
    const bytes = readSync(INPUT_FD, file, at, file.length - at, at);
    if (bytes === 0) throw new Error('the input ends early');
    at += bytes;
  }
  return file;
}

function writeWhole(bytes: Buffer): void {
  for (let at = 0; at < bytes.length; ) at += writeSync(OUTPUT_FD, bytes, at);
}

try {
  main();
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
}
