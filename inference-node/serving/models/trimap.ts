/** Joins a trimap to a picture. picture/matte/trimap.ts makes it from a matte. */

/** Divided by 255 they are the values of the networks' training. */
export const TRIMAP = { background: 0, unsure: 128, subject: 255 } as const;

/** HWC, four bytes a pixel. */
export function withTrimap(rgb: Uint8Array, trimap: Uint8Array): Buffer {
  const joined = Buffer.allocUnsafeSlow(4 * trimap.length);
  for (let i = 0, from = 0, to = 0; i < trimap.length; i++) {
    joined[to++] = rgb[from++]!;
    joined[to++] = rgb[from++]!;
    joined[to++] = rgb[from++]!;
    joined[to++] = trimap[i]!;
  }
  return joined;
}
