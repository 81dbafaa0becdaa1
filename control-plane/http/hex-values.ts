/** What a byte is as a hexadecimal digit, for escapes: a look-up a byte, since a body may be made of them. */

/** Entry of a byte that is no digit. */
export const NOT_HEX = 16;

export const HEX_VALUES = new Uint8Array(256).fill(NOT_HEX);
for (let value = 0; value < 16; value += 1) {
  const digit = value.toString(16);
  HEX_VALUES[digit.charCodeAt(0)] = value;
  HEX_VALUES[digit.toUpperCase().charCodeAt(0)] = value;
}
