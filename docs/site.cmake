# SPDX-License-Identifier: Apache-2.0
# shardwright_configure_site(<output>): writes <output>/Doxyfile and the contents of the site: docs/home.md, the README,
# the sections and pages of docs/index.md in their order, then the declarations by layer.
function(shardwright_configure_site output)
  set(DOXYGEN_ROOT "${PROJECT_SOURCE_DIR}")
  set(DOXYGEN_OUTPUT "${output}")
  file(STRINGS "${DOXYGEN_ROOT}/docs/index.md" lines)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${DOXYGEN_ROOT}/docs/index.md")
  set(chapters "")
  set(end "")
  foreach(line IN LISTS lines)
    if(line MATCHES "^## (.+)$")
      string(APPEND chapters "${end}    <tab type=\"usergroup\" url=\"[none]\" title=\"${CMAKE_MATCH_1}\">\n")
      set(end "    </tab>\n")
    elseif(line MATCHES "^\\|.*\\| \\[(.+)\\]\\((.+/)?([^/]+)\\.md\\) \\|$")
      string(APPEND chapters "      <tab type=\"user\" url=\"@ref page_${CMAKE_MATCH_3}\" title=\"${CMAKE_MATCH_1}\"/>\n")
    endif()
  endforeach()
  # Doxygen 1.9.8 gave the name modules to those of C++20.
  set(topics modules)
  if(DOXYGEN_VERSION VERSION_GREATER_EQUAL 1.9.8)
    set(topics topics)
  endif()
  file(WRITE "${output}/layout.xml" "<doxygenlayout version=\"1.0\">\n  <navindex>\n"
       "    <tab type=\"mainpage\" visible=\"yes\" title=\"Shardwright\"/>\n"
       "    <tab type=\"user\" url=\"@ref page_README\" title=\"Overview\"/>\n"
       "    <tab type=\"user\" url=\"@ref page_index\" title=\"All pages\"/>\n${chapters}${end}"
       "    <tab type=\"user\" url=\"@ref page_surface\" title=\"Names, with their tests\"/>\n"
       "    <tab type=\"${topics}\" visible=\"yes\" title=\"Declarations by layer\"/>\n"
       "    <tab type=\"classlist\" visible=\"yes\" title=\"All types\"/>\n"
       "    <tab type=\"concepts\" visible=\"yes\" title=\"Concepts\"/>\n"
       "    <tab type=\"filelist\" visible=\"yes\" title=\"Headers\"/>\n"
       "    <tab type=\"user\" url=\"@ref page_CONTRIBUTING\" title=\"Contributing\"/>\n"
       "    <tab type=\"user\" url=\"@ref page_CHANGELOG\" title=\"Changelog\"/>\n"
       "  </navindex>\n</doxygenlayout>\n")
  # The theme is a package of Debian; without it the site has Doxygen's own.
  find_file(SHARDWRIGHT_DOXYGEN_THEME doxygen-awesome.css PATHS /usr/share/doxygen-awesome-css /usr/local/share/doxygen-awesome-css)
  mark_as_advanced(SHARDWRIGHT_DOXYGEN_THEME)
  set(DOXYGEN_THEME "")
  if(SHARDWRIGHT_DOXYGEN_THEME)
    set(DOXYGEN_THEME "\"${SHARDWRIGHT_DOXYGEN_THEME}\"")
  endif()
  configure_file("${DOXYGEN_ROOT}/docs/Doxyfile.in" "${output}/Doxyfile" @ONLY)
endfunction()
