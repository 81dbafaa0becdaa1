/**
 * JPEG XL that no encoder here writes. CMYK: 16 x 16 pixels, columns of four each: paper, half of
 * black, cyan with a quarter of black, all of black.
 */
export const CMYK_JXL = Buffer.from(
  'AAAADEpYTCANCocKAAAAFGZ0eXBqeGwgAAAAAGp4bCAAAAAJanhsbAoAAAHXanhsY/8KQ8AoAMLT0IDJ3x///xcQYB' +
    '6YCiBn7qDlaZzXyUHzE7aNYTSqUDCjMfPtDKzKaV7/HA1mYkwFGlotGMKASiBgm4labKQMq14LAIh/AegCEpdzZ4Vu' +
    'GOioKYrrsQHzCjBA7YjwtIFchnXt7cwgAMS+8jfLTKEIcxc4gOiNj/n+41frQkltOJZnurY/gIqGjoGJhY2Di4dPQE' +
    'hETEJKRk5BSUVNQ0tHzwBlZILBmVlY2dg5OLm4eXj5+AUEhYRFRMXEJSSlpGVk5eQVFJWUVVTV1DU0tbR1dPX0DQyN' +
    'jE1MzcwtLK2sbWwRdvYOjk7OLq5u7h6eXt4+vn7+QEBgUHBIaFh4RGRUdExsXHxCYlJySmpaekZmVnZObl5+QWFRcU' +
    'lpWXlFZVV1TW1dfUNjU3NLa1t7R2dXd09vX//A4NDwyOjY+MTk1PTM7Nw8cmFxaXlldW19Y3Nre2d3b//g8Oj45PTs' +
    '/OLy6vrm9u7+4fHp+eX17f3j8+v75/e/X/6/AAABgHeHbVBl7IiAKhI5CqpTOUdQ7cGRoJIZRgEV5E/77/e8BAgIEA' +
    'CUAEsYixUA1KIuxsjICwgBwLhPkuEPaS3ybx4Os9TBkCS8KYUCJgg=',
  'base64',
);

/** The same picture, its right half with an alpha of 64. */
export const CMYK_ALPHA_JXL = Buffer.from(
  'AAAADEpYTCANCocKAAAAFGZ0eXBqeGwgAAAAAGp4bCAAAAAJanhsbAoAAAHganhsY/8KQ0CBAkh4Ghow+fvj//8CAs' +
    'wDUwHkzB20PI3zOjlofsK2MYxGFQpmNGa+nYFVOc3rn6PBTIypQEOrBUMYUAkEbDNRi42UYdVrAQDxLwBdQOJy7qzQ' +
    'DQMdNUVxPTZgXgEGqB0RnjaQy7CuvZ0ZBIDYV/5mmSkUYe4CBxC98THff/xqXSipDcfyTNf2B1DR0DEwsbBxcPHwCQ' +
    'iJiElIycgpKKmoaWjp6BmgjEwwODMLKxs7BycXNw8vH7+AoJCwiKiYuISklLSMrJy8gqKSsoqqmrqGppa2jq6evoGh' +
    'kbGJqZm5haWVtY0tws7ewdHJ2cXVzd3D08vbx9fPHwgIDAoOCQ0Lj4iMio6JjYtPSExKTklNS8/IzMrOyc3LLygsKi' +
    '4pLSuvqKyqrqmtq29obGpuaW1r7+js6u7p7esfGBwaHhkdG5+YnJqemZ2bRy4sLi2vrK6tb2xube/s7u0fHB4dn5ye' +
    'nV9cXl3f3N7dPzw+Pb+8vr1/fH59//z+98v/FwAgAPDusA2qjB0RUEUiR0F1KucIqj04ElQywyiggvxp//2elwggAA' +
    'EAtABLGIsVANSiLsbT8QITAAgAC7gVB39wLZG/cHyTpRgHAu04xm0PMY3nCiA46CA=',
  'base64',
);

/** RGB with a depth beside its alpha: columns of white, white, cyan and white, alpha as above. */
export const DEPTH_ALPHA_JXL = Buffer.from(
  'AAAADEpYTCANCocKAAAAFGZ0eXBqeGwgAAAAAGp4bCAAAAAJanhsbAoAAABDanhsY/8KQ0BBgBIIIAABALQASxiLFQ' +
    'DUoi7G0/ECEwAIAAu4FQd/cC2Rv3B8k6UYBwLtOMZtDzGN5wogOOgg',
  'base64',
);
