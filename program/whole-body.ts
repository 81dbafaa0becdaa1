/** Joins the pieces of a stream. @throws `tooLong()` above `bytesMax` bytes, and ends the stream */
export async function wholeBody(
  pieces: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  bytesMax: number,
  tooLong: () => Error,
): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of pieces) {
    bytes += piece.length;
    if (bytes > bytesMax) throw tooLong();
    parts.push(piece);
  }
  return Buffer.concat(parts, bytes);
}
