/** color-name brings no types of its own. */
declare module 'color-name' {
  /** Red, green and blue, 0 to 255, by the colour's CSS name in lower case. */
  const colors: Readonly<Record<string, readonly [red: number, green: number, blue: number]>>;
  export default colors;
}
